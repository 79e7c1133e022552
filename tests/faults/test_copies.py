"""Folders of runs that were copied or linked under another id: refused by everything that reads or continues them."""

import shutil
import signal
from pathlib import Path

import pytest

from mcpo_cli.analysis.frames import Runs
from mcpo_cli.commands import console
from mcpo_cli.config.load import load
from mcpo_cli.config.plan import Cell, Plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import MissingCells, RunFailed
from mcpo_cli.home import run_dir
from mcpo_cli.runs import attempts, catalog
from mcpo_cli.runs.journal import Journal, read_json, write_json
from mcpo_cli.scheduling import scheduler
from tests.engine import work
from tests.fakes import write_run
from tests.faults.conftest import Faults
from tests.faults.suites import spec_of


@pytest.fixture
def seeds(mcpo_home: Path) -> tuple[RunSpec, RunSpec]:
    """Seed 0, which is done, and seed 1, which is not."""
    first, second = load(["scale=smoke", "seed=0,1", "compute.tracking_uri=offline"])
    write_run(first)
    write_json(run_dir(first.run_id) / "spec.json", first.to_dict())
    return first, second


@pytest.mark.parametrize("how", ["copied", "copied with its own settings", "linked"])
def test_a_folder_under_another_id_is_no_run(
    how: str, seeds: tuple[RunSpec, RunSpec], mcpo_home: Path, faults: Faults
) -> None:
    first, second = seeds
    source, target = run_dir(first.run_id), run_dir(second.run_id)
    if how == "linked":
        target.symlink_to(source)
    else:
        shutil.copytree(source, target)
    if how == "copied with its own settings":
        write_json(target / "spec.json", second.to_dict())
    assert attempts.state(target, second) == "failed"
    (said,) = attempts.missing(target, second)
    assert "is an attempt at another run (seed=0, and this run has seed=1)" in said
    notes: list[str] = []
    assert [run.spec.run_id for run in catalog.runs(mcpo_home, notes.append)] == [first.run_id]
    assert f"{second.run_id} is left out" in notes[0]
    plan = Plan("train", "mcpo train", (Cell("MCPO", first), Cell("MCPO", second)))
    with pytest.raises(MissingCells, match="is an attempt at another run"):
        Runs(plan)
    with pytest.raises(RunFailed, match="is an attempt at another run"):
        attempts.resume_step(target, second, [2])
    with pytest.raises(RunFailed, match="is an attempt at another run"), console.display() as display:
        scheduler.run(plan, display, worker=("false",))
    # Nothing was written through the link.
    assert read_json(source / "spec.json")["seed"] == 0
    assert attempts.state(source, first) == "done"
    faults("a run's folder copied or linked under another id", wrong=0)


@pytest.mark.slow
def test_a_checkpoint_of_another_run_is_not_continued(tmp_path: Path, faults: Faults) -> None:
    """Only the checkpoints were copied: the run begins anew, and its log says why."""
    first, second = spec_of(), spec_of("seed=1")
    assert work(tmp_path, first, "evaluation", 8) == -signal.SIGKILL
    folders = [tmp_path / "runs" / spec.run_id / "attempt_1" for spec in (first, second)]
    assert work(tmp_path, second, "sampling", 1) == -signal.SIGKILL
    shutil.rmtree(folders[1] / "checkpoints", ignore_errors=True)
    shutil.copytree(folders[0] / "checkpoints", folders[1] / "checkpoints")
    assert work(tmp_path, second) == 0
    newest = Journal(folders[1].parent).attempts()[-1]
    wrong = read_json(newest / "status.json")["start_step"] != 0
    assert f"is a checkpoint of {first.run_id}" in (folders[1].parent / "worker.log").read_text()
    faults("checkpoints copied from another run", wrong=int(wrong))


@pytest.mark.slow
def test_a_run_continued_under_other_versions_says_so(tmp_path: Path, faults: Faults) -> None:
    spec = spec_of()
    assert work(tmp_path, spec, "evaluation", 8) == -signal.SIGKILL
    folder = tmp_path / "runs" / spec.run_id
    record = read_json(folder / "attempt_1" / "provenance.json")
    record["packages"]["torch"], record["python"], record["machine"]["processor"] = "0.1", "2.7", "an abacus"
    write_json(folder / "attempt_1" / "provenance.json", record)
    assert work(tmp_path, spec) == 0
    notes = read_json(folder / "attempt_2" / "status.json")["notes"]
    said = [word for word in ("torch", "Python", "processor") if any(f"under {word}" in note for note in notes)]
    assert len(notes) == 3
    faults("a run continued under another torch, Python and processor", times=3, wrong=3 - len(said))
