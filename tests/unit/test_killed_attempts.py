"""Attempts that were killed: their state, and the checkpoints that they leave."""

from pathlib import Path

from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs import attempts, folders
from mcpo_cli.runs.attempts import Attempt, owned
from mcpo_cli.runs.journal import write_json


def spec_of(home: Path) -> tuple[RunSpec, Path]:
    (spec,) = load(["scale=smoke"])
    folder = home / "runs" / spec.run_id
    folder.mkdir(parents=True)
    write_json(folder / "spec.json", spec.to_dict())
    return spec, folder


def checkpoint(attempt: Attempt, step: int) -> None:
    with folders.atomic_folder(attempt.folder / "checkpoints" / f"step_{step:06d}", {"step": step}) as part:
        (part / "weights").write_text("w")


def steps(run_dir: Path) -> list[str]:
    return sorted(f"{path.parent.parent.name} {path.name}" for path in run_dir.glob("attempt_*/checkpoints/*"))


def test_a_killed_attempt_is_interrupted_and_a_living_one_runs(home: Path) -> None:
    spec, folder = spec_of(home)
    with owned(folder):
        Attempt(folder, spec, 0)
        assert attempts.statuses(folder)["attempt_1"]["state"] == "running"
    assert attempts.statuses(folder)["attempt_1"]["state"] == "interrupted"
    with owned(folder):
        Attempt(folder, spec, 0)
        states = {name: status["state"] for name, status in attempts.statuses(folder).items()}
    assert states == {"attempt_1": "interrupted", "attempt_2": "running"}


def test_checkpoints_of_killed_attempts_go_with_the_next(home: Path) -> None:
    spec, folder = spec_of(home)
    killed = Attempt(folder, spec, 0)
    for step in (1, 2, 3):
        checkpoint(killed, step)
    (killed.folder / "checkpoints" / ".step_000004.part").mkdir()
    # The next attempt begins at step 2, because rows of step 3 are lost: its checkpoint no longer counts.
    following = Attempt(folder, spec, 2)
    folders.prune(folder, 2)
    assert steps(folder) == ["attempt_1 step_000001", "attempt_1 step_000002"]
    checkpoint(following, 4)
    folders.prune(folder, 2)
    assert steps(folder) == ["attempt_1 step_000002", "attempt_2 step_000004"]
    folders.prune(folder, 0)
    assert steps(folder) == []
    # The largest step has a digit more than others.
    for step in (999_999, 1_000_000):
        checkpoint(following, step)
    folders.prune(folder, 1)
    assert steps(folder) == ["attempt_2 step_1000000"]


def test_a_temporary_folder_of_a_killed_command_goes_with_the_next(home: Path) -> None:
    (home / ".verify-dead" / "run").mkdir(parents=True)
    with attempts.scratch(home, ".verify-") as first, attempts.scratch(home, ".verify-") as second:
        assert {*home.glob(".verify-*")} == {first, second}
    assert not [*home.glob(".verify-*")]
