"""A run of verl whose rollouts are drawn at another temperature than 1: it is trained at 1, as by the local backend."""

import pytest

from mcpo_cli.runs.journal import Journal
from tests.verl.conftest import TOY, Runs

pytestmark = [pytest.mark.verl, pytest.mark.slow]
SETTINGS = ("method=mcpo", "train.temperature=0.7", "train.steps=2", "eval.every=2", "probe.every=0")


def test_drawn_at_one_temperature_and_trained_at_1(runs: Runs) -> None:
    result = runs("train", *TOY, *SETTINGS)
    assert result.returncode == 0, result.stdout
    journal = Journal(runs.folder("mcpo"))
    for metrics in (row["metrics"] for row in journal.steps()):
        # The rollout engine's log-probabilities are at temperature 1, so the trainer's are, and those of the update.
        assert metrics["sanity/logp_difference"] < 1e-4
        assert metrics["verl/training/rollout_probs_diff_max"] < 1e-4
        assert metrics["sanity/noise_floor"] == 0
        # Nothing knows how probable a response was at the temperature it was drawn at.
        assert "sanity/duplicates_expected" not in metrics
    # Mastered prompts of the first mini-batch stay out of its update, and are reported all the same.
    first = [row["sums"] for row in journal.mini_batches() if row["mini_batch"] == 1]
    assert {sums["hinge/prompts_felt"][0] for sums in first} == {0}
    assert any(sums["hinge/prompts_felt"][1] for sums in first)
