"""Real worker processes of the fork server; only the last test has a run that exists."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.scheduling.process import ForkedWorker, ForkServer
from tests.cli.conftest import MCPO, Cli, InProcess

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
