"""A run of verl to which happens what happens: each time it says what it was, and goes on where it was."""

from pathlib import Path

import pytest

from mcpo_cli.backends.verl import checkpoint
from mcpo_cli.runs.journal import Journal, read_json
from tests.verl.conftest import TOY, Runs, nobody_is_left, status

pytestmark = [pytest.mark.verl, pytest.mark.slow]
SETTINGS = (*TOY, "method=grpo", "train.steps=2", "compute.checkpoint_every=1")


def failed(runs: Runs, fault: str) -> tuple[Path, str]:
    """The folder of the run and what it said, with this fault in the second step."""
    result = runs("train", *SETTINGS, f"cluster.plugin=tests.verl.faults.{fault}")
    assert result.returncode == 1, result.stdout
    folder = runs.folder("grpo")
    assert status(folder)["state"] == "failed"
    assert nobody_is_left(folder)
    # What the first step left behind stays whole.
    assert checkpoint.whole(folder / "checkpoints") == [1]
    assert status(folder)["durable_step"] == 1
    return folder, result.stdout


def test_a_run_goes_on_after_each_fault(runs_apart: Runs) -> None:
    runs = runs_apart
    _, said = failed(runs, "memory")
    assert "out of memory: the machine, or a process limit" in said
    assert "fix: lower cluster.max_tokens_per_gpu" in said
    assert "can't allocate memory" in said

    folder, said = failed(runs, "disk")
    assert f"the checkpoint of step 2 could not be written to {folder / 'checkpoints'}" in said
    assert "newest complete one: step 1" in said
    assert "fix: make room on that disk" in said
    assert not checkpoint.folder(folder / "checkpoints", 2).exists()

    result = runs("train", *SETTINGS, "cluster.plugin=tests.verl.faults.ungraded")
    assert result.returncode == 0, result.stdout
    journal = Journal(folder)
    assert [read_json(attempt / "status.json")["start_step"] for attempt in journal.attempts()] == [0, 1, 1]
    first, second = (row["metrics"] for row in journal.steps())
    assert first["grading/infra_errors"] == 0
    assert second["grading/infra_errors"] == 1 / 32
    before, after = ([row for row in journal.eval() if row["step"] == step] for step in (0, 2))
    assert all(row["n"] == 8 for row in before)
    assert {row["n"] + row.get("ungraded", 0) for row in after} == {8}
    assert sum(row.get("ungraded", 0) for row in after) == 3
    assert runs.json("runs", "show", folder.name)["state"] == "done"
