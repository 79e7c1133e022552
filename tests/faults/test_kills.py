"""Signals at random moments to a run, its scheduler and its child: it can be resumed to the same bits, no orphans."""

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
from tests.engine import begin, differences, end, records, torn, work
from tests.faults.suites import Suite, phase, released, send, spec_of

pytestmark = pytest.mark.slow
MOMENTS = {signal.SIGKILL: 6, signal.SIGTERM: 2, signal.SIGINT: 2}
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
