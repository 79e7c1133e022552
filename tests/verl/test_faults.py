"""Faults in a run of verl: each time the run reports the cause, and continues where it was."""

from pathlib import Path

import pytest

from mcpo_cli.backends.verl import checkpoint
from mcpo_cli.runs.journal import Journal, read_json
from tests.verl.conftest import TOY, Runs, logged, nearly_nothing_is_corrected, nobody_is_left, status

pytestmark = [pytest.mark.verl, pytest.mark.slow]
LOCAL = {
    "train/reward",
    "train/accuracy",
    "train/response_length",
    "train/entropy",
    "train/grad_norm",
    "train/lr",
    "mastery/mastered",
    "mastery/all_wrong",
    "sampling/prompts",
    "sampling/kept",
    "sampling/rounds",
    "perf/seconds",
    "perf/seconds_sample",
    "perf/seconds_update",
    "perf/tokens_per_second",
}
"""Metrics that every step of either backend has."""
METHOD = ("method=rl_zvp", "method.entropy=current", "train.overlong_cache=0")
"""Advantages of tokens, which change with the policy from gradient step to gradient step."""
CORRECTED = ("train.correction=token-truncate", "train.off_policy_mask=0.5")
SETTINGS = (*TOY, *METHOD, *CORRECTED, "train.steps=2", "compute.checkpoint_every=1")


def failed(runs: Runs, fault: str) -> tuple[Path, str]:
    """The folder of the run and its output, with this fault in the second step."""
    result = runs("train", *SETTINGS, f"cluster.plugin=tests.verl.faults.{fault}")
    assert result.returncode == 1, result.stdout
    folder = runs.folder("rl_zvp")
    assert status(folder)["state"] == "failed"
    assert nobody_is_left(folder)
    # The results of the first step stay complete.
    assert checkpoint.complete(folder / "checkpoints") == [1]
    assert status(folder)["durable_step"] == 1
    return folder, result.stdout


def test_a_run_goes_on_after_each_fault(runs: Runs) -> None:
    folder, said = failed(runs, "disk")
    assert f"the checkpoint of step 2 could not be written to {folder / 'checkpoints'}" in said
    assert "newest complete one: step 1" in said
    assert "fix: make room on that disk" in said
    assert not checkpoint.folder(folder / "checkpoints", 2).exists()

    result = runs("train", *SETTINGS, "cluster.plugin=tests.verl.faults.ungraded")
    assert result.returncode == 0, result.stdout
    journal = Journal(folder)
    assert [read_json(attempt / "status.json")["start_step"] for attempt in journal.attempts()] == [0, 1]
    first, second = (row["metrics"] for row in journal.steps())
    assert "grading/infra_errors" not in first
    assert second["grading/infra_errors"] == 1 / 32
    before, after = ([row for row in journal.eval() if row["step"] == step] for step in (0, 2))
    assert all(row["n"] == 8 for row in before)
    assert {row["n"] + row.get("ungraded", 0) for row in after} == {8}
    assert sum(row.get("ungraded", 0) for row in after) == 3
    assert runs.json("runs", "show", folder.name)["state"] == "done"
    journal_and_store_are_filled(runs, folder)
    nearly_nothing_is_corrected(journal)


def journal_and_store_are_filled(runs: Runs, folder: Path) -> None:
    journal = Journal(folder)
    steps = journal.steps()
    assert [row["step"] for row in steps] == [1, 2]
    assert all(row["metrics"].keys() >= LOCAL for row in steps)
    # The sampling and the trained policy are equal, before and after an update.
    assert all(row["metrics"]["verl/training/rollout_probs_diff_max"] < 1e-4 for row in steps)
    assert len(journal.groups()) == 16
    assert all(row["kept"] for row in journal.groups())
    evaluated = journal.eval()
    assert {(row["step"], row["tier"]) for row in evaluated} == {
        (step, tier) for step in (0, 2) for tier in ("k2-3", "k5-6", "k7-8")
    }
    assert len(evaluated) == 2 * 3 * 6
    assert logged(runs.home, folder, "train/accuracy") == [
        (row["step"], row["metrics"]["train/accuracy"]) for row in steps
    ]
    attempt = journal.attempts()[-1]
    assert (attempt / "verl.log").stat().st_size
    assert list((attempt / "ray").rglob("raylet.out"))
    assert nobody_is_left(folder)
