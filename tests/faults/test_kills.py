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
from typing import Any

import pytest

from mcpo_cli.runs.attempts import state
from mcpo_cli.runs.journal import Journal, read_json
from tests.engine import begin, differences, end, records, torn, work
from tests.faults.suites import Suite, phase, released, send, spec_of

pytestmark = pytest.mark.slow
SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
MOMENTS = {signal.SIGKILL: 12, signal.SIGTERM: 6, signal.SIGINT: 6}
"""Number of signals per kind. A fifth of these lives first makes the base policy, which takes most of their time."""


class Undisturbed:
    """An undisturbed run: its home, its records, and its duration without and with making the base policy."""

    def __init__(self, home: Path) -> None:
        self.home, self.spec = home, spec_of()
        began = time.monotonic()
        assert work(home, self.spec) == 0
        self.records = records(home, self.spec)
        self.seconds = [time.monotonic() - began]
        shutil.copytree(home / "cache", home / "again" / "cache")
        began = time.monotonic()
        assert work(home / "again", self.spec) == 0
        self.seconds.append(time.monotonic() - began)
        assert records(home / "again", self.spec) == self.records


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    # The first life loads the libraries.
    assert work(tmp_path_factory.mktemp("first"), spec_of("seed=9")) == 0
    return Undisturbed(tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize("number", SIGNALS)
def test_a_run_signalled_at_random_moments(number: signal.Signals, undisturbed: Undisturbed, tmp_path: Path) -> None:
    rng, spec = random.Random(number), undisturbed.spec
    phases = Counter[str]()
    while phases.total() < MOMENTS[number]:
        home, warm = tmp_path / str(rng.random()), phases.total() % 5 != 0
        if warm:
            shutil.copytree(undisturbed.home / "cache", home / "cache")
        folder = home / "runs" / spec.run_id
        process = begin(home, spec)
        if not send(process, number, rng.uniform(0, undisturbed.seconds[warm])):
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
        assert differences(undisturbed.records, records(home, spec)) == (0, 0)
        shutil.rmtree(home)
    # The duration of each phase depends on the machine, but the moments must not all be in one.
    assert len(phases) > 1, phases


Both = tuple[Suite, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """The two undisturbed runs, and their records."""
    suite = Suite(tmp_path_factory.mktemp("both"))
    for spec in suite.specs:
        assert work(suite.home, spec) == 0
    return suite, {spec.run_id: records(suite.home, spec) for spec in suite.specs}


def begun(both: Both, home: Path, parallel: int) -> "tuple[Suite, subprocess.Popen[str]]":
    """Start a scheduler for the two runs in `home`, with the base policy, `parallel` runs at a time."""
    suite = Suite(home, f"compute.parallel={parallel}")
    shutil.copytree(both[0].home / "cache", home / "cache")
    return suite, suite.begin()


def finish(suite: Suite, expected: dict[str, dict[str, Any]]) -> None:
    """Let the same command complete the runs, and check that no record is lost or different."""
    assert not any(torn(suite.folder(spec)) for spec in suite.specs)
    out, err = (process := suite.begin()).communicate(timeout=600)
    assert process.returncode == 0, err
    assert [run["state"] for run in json.loads(out)["runs"]] == ["done", "done"]
    for spec in suite.specs:
        assert differences(expected[spec.run_id], records(suite.home, spec)) == (0, 0)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_scheduler_signalled(number: signal.Signals, both: Both, tmp_path: Path) -> None:
    """The signal comes while the first worker starts or trains and another run waits: both end; the command resumes."""
    suite, process = begun(both, tmp_path, parallel=1)
    suite.wait_for_step(SIGNALS.index(number))
    process.send_signal(number)
    process.communicate(timeout=600)
    assert process.returncode in ({-signal.SIGKILL} if number == signal.SIGKILL else {130, -number})
    assert suite.nobody_is_left()
    assert set(suite.states()) <= {"interrupted", "planned", "done"}
    finish(suite, both[1])


@pytest.mark.parametrize("number", SIGNALS)
def test_a_child_of_the_scheduler_signalled(number: signal.Signals, both: Both, tmp_path: Path) -> None:
    """Its run is reported as interrupted, the other one completes, and the same command continues."""
    suite, process = begun(both, tmp_path, parallel=2)
    victim = suite.specs[0]
    while not Journal(suite.folder(victim)).attempts():
        time.sleep(0.02)
    status = read_json(Journal(suite.folder(victim)).attempts()[-1] / "status.json")
    os.kill(status["pid"], number)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 1, err
    assert [run["state"] for run in json.loads(out)["runs"]] == ["interrupted", "done"]
    assert suite.nobody_is_left()
    finish(suite, both[1])
