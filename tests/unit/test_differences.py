"""The families of a comparison: what repeats counts once. And how often runs of one method are called different."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from mcpo_cli.analysis.comparison import Choice, compare
from mcpo_cli.analysis.differences import Difference, adjusted, distinct
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.config.plan import from_suite
from mcpo_cli.statistics import stats
from tests.fakes import write_runs

METRICS = ("pass@1", "best@8", "pass@8")


def difference(at: str, arm: str, *by_seed: float) -> Difference:
    return Difference(at, "toy-s", arm, "average", "pass@1", stats.paired_t(by_seed), by_seed)


def test_equal_steps_and_equal_rollouts_count_once_where_they_are_one_comparison() -> None:
    one, other = (0.01, 0.02, 0.03), (0.05, 0.02, 0.03)
    family = [
        difference(at, arm, *values) for at in ("steps", "rollouts") for arm, values in (("a", one), ("b", other))
    ]
    assert len(distinct(family)) == 2
    # t = .02 / (.01 / sqrt(3)) = 3.464, and for b .0333 / (.01528 / sqrt(3)) = 3.780; the smaller p is doubled.
    p_a, p_b = (scipy_stats.ttest_1samp(values, 0).pvalue for values in (one, other))
    assert [found.p_holm for found in adjusted(family)] == pytest.approx([max(p_a, 2 * p_b), 2 * p_b] * 2)


def test_equal_numbers_of_different_arms_or_tiers_and_unequal_ones_of_one_arm_are_tests_of_their_own() -> None:
    one = difference("steps", "a", 0.01, 0.02, 0.03)
    family = [
        one,
        replace(one, arm="b"),
        replace(one, tier="k2-3"),
        replace(one, metric="best@8"),
        difference("rollouts", "a", 0.01, 0.02, 0.04),
    ]
    assert distinct(family) == family
    assert adjusted(family)[1].p_holm == pytest.approx(min(1.0, 5 * min(found.effect.p for found in family)), rel=1)


def test_the_average_over_a_single_tier_is_not_counted_beside_the_tier(
    mcpo_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = from_suite("table1", ["scale=smoke", "model=toy-s"], "mcpo reproduce table1")
    write_runs(plan)
    runs = Runs(plan)
    scores = runs.scores(8)
    monkeypatch.setattr(Runs, "scores", lambda self, k: scores[scores["tier"] == "k2-3"])
    assert [(one.tier, one.metric) for one in compare(runs, Choice()).differences] == [
        ("k2-3", metric) for metric in METRICS
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5, 8])
def test_runs_of_one_method_are_called_different_in_one_comparison_of_twenty(
    seeds: int, mcpo_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A/A: 200 comparisons of two arms whose scores come from one distribution, around what a seed gives to both."""
    trials = 200
    numbers = ",".join(map(str, range(seeds)))
    plan = from_suite("table1", ["scale=smoke", "model=toy-s", f"seed={numbers}"], "mcpo reproduce table1")
    write_runs(plan)
    runs, rng = Runs(plan), np.random.default_rng(seeds)
    called = 0
    for _ in range(trials):
        level_S, noise_AS = rng.normal(0.4, 0.05, seeds), rng.normal(0, 0.02, (2, seeds))
        rows = [
            {"model": "toy-s", "arm": cell.arm, "base_seed": cell.spec.seed_of_base, "seed": cell.spec.seed}
            | {"tier": "k2-3", "step": step, "cost/rollouts": 100.0 * step}
            | dict.fromkeys(
                METRICS, level_S[cell.spec.seed] + (step > 0) * noise_AS[int(cell.arm == "MCPO")][cell.spec.seed]
            )
            for cell in plan.cells
            for step in (0, 3)
        ]
        frame = pd.DataFrame(rows)
        monkeypatch.setattr(Runs, "scores", lambda self, k, frame=frame: frame)
        found = compare(runs, Choice())
        assert len(distinct(found.headline)) == 1
        called += found.headline[0].verdict != "open"
    # With probability .05 each, more than 18 of 200 happen in less than one of a hundred such tests.
    assert called <= scipy_stats.binom.ppf(0.99, trials, 0.05) == 18
