"""Signals at random moments to a run, its scheduler and its child, and two processes with one suite at once.

A run can be resumed to the same bits, none is trained twice or lost, and no process is left.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from mcpo_cli.runs.attempts import state
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.scheduling.worker import BUSY
from tests.cli.conftest import InProcess
from tests.engine import begin, differences, end, records, torn, work
from tests.faults.suites import Suite, phase, released, send, spec_of

pytestmark = pytest.mark.slow
MOMENTS = {signal.SIGKILL: 4, signal.SIGTERM: 2, signal.SIGINT: 2}
"""Number of signals per kind. `tests/e2e/test_resume.py` kills runs while they make the base policy."""


@pytest.fixture(scope="module")
def seconds(undisturbed: Path, tmp_path_factory: pytest.TempPathFactory) -> float:
    """The duration of a run that has its base policy; a life before it loads the libraries."""
    home, spec = tmp_path_factory.mktemp("timed"), spec_of()
    shutil.copytree(undisturbed / "cache", home / "cache")
    began = time.monotonic()
    assert work(home, spec) == 0
    return time.monotonic() - began


@pytest.mark.parametrize("number", MOMENTS)
def test_a_run_signalled_at_random_moments(
    number: signal.Signals, undisturbed: Path, seconds: float, tmp_path: Path
) -> None:
    rng, spec = random.Random(number), spec_of()
    phases = Counter[str]()
    while phases.total() < MOMENTS[number]:
        home = tmp_path / str(rng.random())
        shutil.copytree(undisturbed / "cache", home / "cache")
        folder = home / "runs" / spec.run_id
        process = begin(home, spec)
        if not send(process, number, rng.uniform(0, seconds)):
            continue  # it was done before its moment came
        code = end(process)
        if number == signal.SIGKILL and state(folder, spec) == "done":
            continue  # it ended just before
        # Before the worker handles signals, each of them ends it, SIGINT by Python's exception; SIGKILL always does.
        before = number == signal.SIGINT and code == 1 and not Journal(folder).attempts()
        assert code == -number or before or (number != signal.SIGKILL and code in (0, 130))
        assert released(folder)
        assert state(folder, spec) == (
            "done" if code == 0 else "interrupted" if Journal(folder).attempts() else "planned"
        )
        phases[phase(home, spec)] += 1
        assert torn(folder) == 0
        assert work(home, spec) == 0
        assert differences(records(undisturbed, spec), records(home, spec)) == (0, 0)
        shutil.rmtree(home)
    # The duration of each phase depends on the machine, but many moments must not all be in one.
    assert len(phases) > 1 or number != signal.SIGKILL, phases


def begun(undisturbed: Path, home: Path, parallel: int) -> "tuple[Suite, subprocess.Popen[str]]":
    """Start a scheduler for the two runs in `home`, with the base policy, `parallel` runs at a time."""
    suite = Suite(home, f"compute.parallel={parallel}")
    shutil.copytree(undisturbed / "cache", home / "cache")
    return suite, suite.begin()


def finish(suite: Suite, undisturbed: Path) -> None:
    """Complete the runs, as the same command does (`test_disk.py`); no record is lost or different."""
    assert not any(torn(suite.folder(spec)) for spec in suite.specs)
    for spec in suite.specs:
        assert work(suite.home, spec) == 0
        assert differences(records(undisturbed, spec), records(suite.home, spec)) == (0, 0)


@pytest.mark.parametrize(("number", "step"), [(signal.SIGKILL, 0), (signal.SIGINT, 2)])
def test_the_scheduler_signalled(number: signal.Signals, step: int, undisturbed: Path, tmp_path: Path) -> None:
    """The signal comes while the first worker starts or trains and another run waits: both end; the command resumes."""
    suite, process = begun(undisturbed, tmp_path, parallel=1)
    suite.wait_for_step(step)
    process.send_signal(number)
    process.communicate(timeout=600)
    assert process.returncode in ({-signal.SIGKILL} if number == signal.SIGKILL else {130, -number})
    assert suite.nobody_is_left()
    assert set(suite.states()) <= {"interrupted", "planned", "done"}
    finish(suite, undisturbed)


def test_a_child_of_the_scheduler_killed(undisturbed: Path, tmp_path: Path) -> None:
    """Its run is reported as interrupted, the other one completes, and the same command continues."""
    suite, process = begun(undisturbed, tmp_path, parallel=2)
    victim = suite.specs[0]
    while not Journal(suite.folder(victim)).attempts():
        time.sleep(0.02)
    status = read_json(Journal(suite.folder(victim)).attempts()[-1] / "status.json")
    os.kill(status["pid"], signal.SIGKILL)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 1, err
    assert [run["state"] for run in json.loads(out)["runs"]] == ["interrupted", "done"]
    assert suite.nobody_is_left()
    finish(suite, undisturbed)


MEANWHILE = (
    *("runs list", "runs show {run}", "runs samples {run}", "runs bundle {run} {at}/bundle", "verify {run}"),
    *(
        "runs export --to {at}/tables",
        "export {run} --to {at}/policy",
        "evaluate {run} --benchmarks arithmetic --dry-run",
    ),
    *("compare {run}", "probe sanity {run}", "fork {run} --at 1 train.lr=1e-3 --dry-run", "runs unbundle {at}/none"),
)
"""Commands about an active run."""


def test_two_workers_of_one_run(
    undisturbed: Path, here: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the second worker nor a command changes anything while the first is stopped; and the first completes."""
    monkeypatch.setenv("MCPO_HOME", str(tmp_path))
    spec = spec_of()
    shutil.copytree(undisturbed / "cache", tmp_path / "cache")
    folder, first = tmp_path / "runs" / spec.run_id, begin(tmp_path, spec)
    while not (attempts := Journal(folder).attempts()):
        time.sleep(0.01)
    pid = read_json(attempts[0] / "status.json")["pid"]
    os.kill(pid, signal.SIGSTOP)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".log"}
    assert [work(tmp_path, spec), work(tmp_path, spec)] == [BUSY, BUSY]
    for words in MEANWHILE:
        done = here(*words.format(run=spec.run_id, at=tmp_path).split())
        assert done.returncode in range(4), (words, done.stderr)
        assert done.stderr.count("error: ") == (done.returncode > 0), (words, done.stderr)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".log"} == before
    os.kill(pid, signal.SIGCONT)
    assert end(first) == 0
    assert released(folder)
    assert differences(records(undisturbed, spec), records(tmp_path, spec)) == (0, 0)


def test_the_other_takes_over_when_one_dies(undisturbed: Path, tmp_path: Path) -> None:
    """The killed process owns both runs; the other one waits and continues them."""
    suite = Suite(tmp_path, "compute.parallel=2")
    shutil.copytree(undisturbed / "cache", tmp_path / "cache")
    first = suite.begin()
    for spec in suite.specs:
        while not (attempts := Journal(suite.folder(spec)).attempts()):
            time.sleep(0.01)
        # It holds its run as long as the test needs it.
        os.kill(read_json(attempts[0] / "status.json")["pid"], signal.SIGSTOP)
    assert suite.states() == ["running", "running"]
    second = suite.begin()
    assert second.stderr is not None
    while "running" not in (line := second.stderr.readline()):
        assert line, "it ended"
    for process in suite.processes():
        # Scheduler and workers at once, as when a machine is cut off. The other has no children.
        if process.pid != second.pid:
            process.send_signal(signal.SIGKILL)
    first.communicate(timeout=600)
    out, err = second.communicate(timeout=600)
    assert second.returncode == 0, err
    assert [run["state"] for run in json.loads(out)["runs"]] == ["done", "done"]
    assert {len(Journal(suite.folder(spec)).attempts()) for spec in suite.specs} == {2}
    assert suite.nobody_is_left()
    for spec in suite.specs:
        assert torn(suite.folder(spec)) == 0
        assert differences(records(undisturbed, spec), records(tmp_path, spec)) == (0, 0)
