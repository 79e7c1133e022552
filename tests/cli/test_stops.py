"""A request to stop ends a run within seconds at any point, and the output says how it continues."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mcpo_cli.errors import Interrupted
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.scheduling.worker import StopRequest
from tests.errors import refused

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
    command = [sys.executable, "-m", "mcpo_cli.main", "train", *words, "compute.tracking_uri=offline"]
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
