"""Two `mcpo` processes with the same suite at once: no run is trained twice, or lost when one process dies."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.scheduling.worker import BUSY
from tests.cli.conftest import InProcess
from tests.engine import begin, differences, end, records, torn, work
from tests.faults.suites import Suite, released, spec_of

pytestmark = pytest.mark.slow


def compare(suite: Suite, undisturbed: Path) -> tuple[int, int]:
    """Lost and wrong records of both runs."""
    found = [differences(records(undisturbed, spec), records(suite.home, spec)) for spec in suite.specs]
    return sum(lost for lost, _ in found), sum(wrong for _, wrong in found) + sum(
        torn(suite.folder(spec)) for spec in suite.specs
    )


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
    assert compare(suite, undisturbed) == (0, 0)
