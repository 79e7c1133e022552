"""A power cut loses rows that were not synced, although later checkpoints were. Every run can continue after it."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.attempts import state
from mcpo_cli.runs.journal import Journal, read_json
from tests.engine import begin, differences, end, records, work
from tests.faults.suites import spec_of
from tests.faults.test_disk import REAL, mounted

pytestmark = pytest.mark.slow
STEPS = 12
CUT_AT = 6
"""The checkpoint after which the power is cut."""
IMAGE_MIB = 64


def spec_of_a_longer_run() -> RunSpec:
    spec = spec_of()
    return replace(spec, train=replace(spec.train, steps=STEPS), compute=replace(spec.compute, checkpoint_every=2))


@pytest.fixture(scope="module")
def longer(undisturbed: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The home of an undisturbed longer run, and its records."""
    home, spec = tmp_path_factory.mktemp("longer"), spec_of_a_longer_run()
    shutil.copytree(undisturbed / "cache", home / "cache")
    assert work(home, spec) == 0
    return home, records(home, spec)


@contextmanager
def stopped_at(home: Path, spec: RunSpec, step: int) -> Iterator[ForkServerProcess]:
    """A worker that is stopped (SIGSTOP) once a checkpoint covers `step`, and killed at the end of the block."""
    folder = home / "runs" / spec.run_id
    process = begin(home, spec)
    while not (attempts := Journal(folder).attempts()):
        time.sleep(0.005)
    while read_json(attempts[-1] / "status.json")["durable_step"] < step:
        time.sleep(0.001)
    os.kill(pid_of(process), signal.SIGSTOP)
    try:
        yield process
    finally:
        process.kill()
        end(process)


def pid_of(process: ForkServerProcess) -> int:
    assert process.pid is not None
    return process.pid


def continued(home: Path, spec: RunSpec) -> tuple[int, str]:
    """Start the run again, check that it gets done and stays done; returns the step it continued from, and its note."""
    assert work(home, spec) == 0
    folder = home / "runs" / spec.run_id
    assert state(folder, spec) == "done"
    status = read_json(Journal(folder).attempts()[-1] / "status.json")
    return status["start_step"], "; ".join(status.get("notes", []))


LOSSES: dict[str, tuple[Callable[[Path], object], int]] = {
    "the end of the journal's last row": (lambda path: path.write_bytes(path.read_bytes()[:-100]), CUT_AT - 2),
    "a block of the journal, now zeros": (lambda path: keep_lines(path, 1, bytes(100)), 0),
    "the prompts of a step": (lambda path: (path.parent / "groups/step_000005.jsonl").unlink(), CUT_AT - 2),
}
"""Loss -> a function of the path of the rows that causes it, and the step that the run continues from."""


def keep_lines(path: Path, number: int, end: bytes = b"") -> None:
    """Cut the file after `number` lines. end: replaces the next line, such as zeros that were never written."""
    lines = path.read_bytes().splitlines(keepends=True)
    rest = [end + b"\n", *lines[number + 1 :]] if end else []
    path.write_bytes(b"".join([*lines[:number], *rest]))


@pytest.fixture(scope="module")
def killed(longer: tuple[Path, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a run that was killed after the checkpoint of step CUT_AT."""
    home, spec = tmp_path_factory.mktemp("killed"), spec_of_a_longer_run()
    shutil.copytree(longer[0] / "cache", home / "cache")
    attempt = home / "runs" / spec.run_id / "attempt_1"
    # On a busy machine it may have trained further before it stopped.
    while [path.name for path in sorted(attempt.glob("checkpoints/*"))] != ["step_000004", "step_000006"]:
        shutil.rmtree(home / "runs", ignore_errors=True)
        with stopped_at(home, spec, CUT_AT):
            pass
    keep_lines(attempt / "metrics.jsonl", CUT_AT)
    return home


@pytest.mark.parametrize("what", LOSSES)
def test_rows_that_a_checkpoint_covers_are_lost(
    what: str, killed: Path, longer: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """The run continues from the newest checkpoint whose rows exist, and names it."""
    _, expected = longer
    spec = spec_of_a_longer_run()
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    attempt = tmp_path / "runs" / spec.run_id / "attempt_1"
    injure, start = LOSSES[what]
    injure(attempt / "metrics.jsonl")
    step, said = continued(tmp_path, spec)
    assert step == start
    assert ("the base policy" if start == 0 else f"the checkpoint of step {start}") in said
    assert differences(expected, records(tmp_path, spec)) == (0, 0)


@pytest.mark.parametrize("_real", REAL)
def test_the_power_is_cut(_real: bool, longer: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """A copy of an ext4 image at that moment lacks the data that the kernel has not written."""
    home, expected = longer
    spec = spec_of_a_longer_run()
    image, copy, disk = tmp_path / "disk.img", tmp_path / "copy.img", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(IMAGE_MIB << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    # ext4 commits unsynced data every 5 seconds, which could happen while the image is copied.
    words = ("-o", "loop,commit=600")
    with mounted(disk, *words, str(image)):
        shutil.copytree(home / "cache", disk / "cache")
        with stopped_at(disk, spec, CUT_AT):
            shutil.copy(image, copy)
    with mounted(disk, *words, str(copy)):
        step, said = continued(disk, spec)
        # All rows of the checkpoint were synced before it was written.
        assert step >= CUT_AT
        assert said == ""
        assert differences(expected, records(disk, spec)) == (0, 0)


def test_a_run_folder_removed_in_mid_run(longer: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """The run ends with a message, and the next start trains it from the beginning."""
    home, expected = longer
    spec = spec_of_a_longer_run()
    shutil.copytree(home / "cache", tmp_path / "cache")
    with stopped_at(tmp_path, spec, CUT_AT) as process:
        shutil.rmtree(tmp_path / "runs" / spec.run_id)
        os.kill(pid_of(process), signal.SIGCONT)
        assert end(process) == 1
    error = read_json(tmp_path / "runs" / spec.run_id / "attempt_1" / "status.json")["error"]
    assert "was removed while it was being written" in error
    step, _ = continued(tmp_path, spec)
    assert step == 0
    assert differences(expected, records(tmp_path, spec)) == (0, 0)
