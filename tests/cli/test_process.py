"""Real worker processes, also killed ones; and a request to stop, which ends a run within seconds at any point."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpo_cli.errors import Interrupted
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.scheduling.process import ForkedWorker, ForkServer
from mcpo_cli.scheduling.worker import StopRequest
from tests.cli.conftest import MCPO, Cli, InProcess
from tests.errors import refused

PATIENCE = 300.0


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def steps(home: Path) -> list[Any]:
    return [row for run in home.glob("runs/*") for row in Journal(run).steps()]


def fork_server(parent: int) -> psutil.Process:
    """The fork server that the process `parent` started. Its command line is empty while it begins to execute."""
    found: list[psutil.Process] = []

    def is_there() -> bool:
        children = psutil.Process(parent).children()
        found[:] = [one for one in children if "mcpo_cli.scheduling.process" in one.cmdline()]
        return bool(found)

    until(is_there)
    return max(found, key=lambda one: one.create_time())


def end(worker: ForkedWorker) -> int:
    until(lambda: worker.poll() is not None)
    assert worker.code is not None
    return worker.code


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServer]:
    with closing(ForkServer("json", {"MCPO_HOME": str(tmp_path)})) as server:
        yield server


def test_a_worker_has_a_process_an_exit_code_and_a_log_of_its_own(server: ForkServer, tmp_path: Path) -> None:
    names = ("one", "two")
    workers = [server.start(name, tmp_path / f"{name}.log") for name in names]
    assert [end(worker) for worker in workers] == [1, 1]
    assert len({worker.pid for worker in workers} | {os.getpid()}) == 3
    for name in names:
        assert str(tmp_path / "runs" / name) in (tmp_path / f"{name}.log").read_text()


def test_a_worker_that_is_not_born_yet_can_be_killed(server: ForkServer, tmp_path: Path) -> None:
    worker = server.start("one", tmp_path / "log")
    assert worker.pid == 0
    worker.kill()
    assert end(worker) in (-signal.SIGKILL, 1)


@pytest.mark.slow
def test_workers_of_a_server_that_was_killed_have_ended(server: ForkServer, tmp_path: Path) -> None:
    process = fork_server(os.getpid())
    process.kill()
    until(lambda: process.status() == psutil.STATUS_ZOMBIE)
    worker = server.start("one", tmp_path / "log")
    assert end(worker) == -signal.SIGKILL


@pytest.mark.slow
def test_a_run_whose_server_is_killed_writes_a_checkpoint_and_continues(cli: Cli, here: InProcess) -> None:
    untrained = ("scale=smoke", "warmup.target_accuracy=0", "train.max_response=16")
    command = ("train", *untrained, "train.steps=100", "compute.checkpoint_every=100", "compute.tracking_uri=offline")
    process = subprocess.Popen([*MCPO, *command], env=cli.env, stderr=subprocess.PIPE, text=True)
    until(lambda: len(steps(cli.home)) > 3)
    fork_server(process.pid).kill()
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "killed by SIGKILL" in said
    (run,) = (cli.home / "runs").iterdir()
    until(lambda: read_json(run / "attempt_1" / "status.json")["state"] == "interrupted")
    reached = len(steps(cli.home))
    saved = {int(path.name.split("_")[1]) for path in (run / "attempt_1" / "checkpoints").iterdir()}
    assert saved == {0, reached}
    assert here(*command).returncode == 0
    assert [row["step"] for row in steps(cli.home)] == [*range(1, 101)]


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


@pytest.fixture
def stop() -> Iterator[StopRequest]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield StopRequest()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_looks_at_nothing_is_ended(number: signal.Signals, stop: StopRequest) -> None:
    threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
    began = time.monotonic()
    with refused("interrupted"), stop.within(0.2):
        catch_all_for(20)
    assert time.monotonic() - began < 5
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def catch_all_for(seconds: float) -> None:
    """Work whose errors are caught, like those of a method."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        with suppress(Exception):
            time.sleep(seconds)


def test_a_request_of_before_counts_and_none_is_left_alone(stop: StopRequest) -> None:
    with stop.within(0.05):
        time.sleep(0.2)
    signal.raise_signal(signal.SIGINT)
    with stop.within(None):
        time.sleep(0.2)
    with pytest.raises(Interrupted), stop.within(0.05):
        time.sleep(20)


@pytest.mark.slow
def test_training_ends_in_the_middle_of_a_step_that_takes_minutes(tmp_path: Path) -> None:
    """test_scheduler.py sends both signals."""
    words = [
        "scale=smoke",
        "warmup.target_accuracy=0",
        "train.prompts=16384",
        "train.mini_batch=16384",
        "train.rollouts=64",
    ]
    command = [*MCPO, "train", *words, "compute.tracking_uri=offline"]
    environment = {**os.environ, "MCPO_HOME": str(tmp_path)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    while not (status := status_of(tmp_path)).startswith("step 1"):
        assert process.poll() is None
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    _, said = process.communicate(timeout=60)
    # Ten seconds on an idle machine.
    assert time.monotonic() - began < 30, status
    assert process.returncode == 130
    assert "the same command continues" in said


def status_of(home: Path) -> str:
    """The status of the only run below `home`."""
    for folder in (home / "runs").glob("*"):
        for attempt in Journal(folder).attempts():
            return str(read_json(attempt / "status.json").get("phase", ""))
    return ""
