"""Comparisons of runs whose scores are set by hand: equal cost, families, verdicts, several base policies."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from mcpo_cli.analysis import comparison, equal_cost
from mcpo_cli.analysis.comparison import Choice, Row, adjusted, compare, records
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.config.plan import Plan
from mcpo_cli.statistics import stats
from tests import fakes
from tests.errors import refused


@pytest.fixture
def runs(mcpo_home: object) -> Runs:
    """Three seeds of table1 on one model."""
    return Runs(fakes.table1())


def set_scores(runs: Runs, monkeypatch: pytest.MonkeyPatch, arms: dict[str, list[tuple[int, float, float]]]) -> None:
    """Give every run of an arm evaluations (step, rollouts, score), and seed s the score plus s / 100."""
    rows = [
        {"arm": cell.arm, "model": "toy-s", "base_seed": cell.spec.seed_of_base, "seed": cell.spec.seed, "tier": tier}
        | {"step": step, "cost/rollouts": rollouts}
        | dict.fromkeys(("pass@1", "best@8", "pass@8"), score + cell.spec.seed / 100 * (cell.arm == "MCPO"))
        for cell in runs.cells
        for tier in ("k2-3", "k7-8")
        for step, rollouts, score in arms[cell.arm]
    ]
    monkeypatch.setattr(Runs, "scores", lambda self, k: pd.DataFrame(rows))


def test_equal_steps_and_equal_rollouts_by_hand(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """DAPO samples twice as much per step: MCPO ends at the rollouts of DAPO's middle, half way from .2 to .4."""
    points = {"DAPO": [(0, 0.0, 0.1), (1, 200.0, 0.2), (3, 600.0, 0.4)], "MCPO": [(0, 0.0, 0.1), (3, 400.0, 0.25)]}
    set_scores(runs, monkeypatch, points)
    found = compare(runs, Choice())
    assert found.axes == ["steps", "rollouts"]
    assert found.where == {("steps", "toy-s"): 3.0, ("rollouts", "toy-s"): 400.0}
    headline = found.headline.set_index("at")
    # Seeds 0, 1, 2 add .00, .01, .02 to MCPO.
    assert headline["mean"].to_dict() == pytest.approx({"steps": 0.25 + 0.01 - 0.4, "rollouts": 0.25 + 0.01 - 0.3})
    assert headline.loc["rollouts", "by_seed"] == pytest.approx((-0.05, -0.04, -0.03))
    # The t statistics are .14 and .04 over .01 / sqrt(3); Holm doubles the smaller p.
    assert headline["p"].tolist() == pytest.approx([0.0016965, 0.0202041], rel=1e-3)
    assert headline["p_holm"].tolist() == pytest.approx([0.003393, 0.0202041], rel=1e-3)
    assert headline["verdict"].tolist() == ["worse", "worse"]


def test_nothing_is_extrapolated_and_a_choice_moves_the_headline(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"DAPO": [(0, 0.0, 0.1), (3, 600.0, 0.4)], "MCPO": [(0, 0.0, 0.1), (3, 400.0, 0.25)]}
    set_scores(runs, monkeypatch, points)
    found = compare(runs, Choice(baseline="MCPO", metric="best@8", at=("rollouts",)))
    assert (found.axes, found.baseline, found.metric) == (["rollouts"], "MCPO", "best@8")
    assert set(found.headline["arm"]) == {"DAPO"}
    curves = found.curves
    assert curves["x"].max() == 400
    assert curves[(curves["arm"] == "DAPO") & (curves["x"] == 400)]["value"].tolist() == pytest.approx([0.3] * 3)


def test_a_figure_shows_every_evaluation_of_an_arm_and_what_is_interpolated(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MCPO's evaluation after 300 rollouts is in its curve, although DAPO was evaluated only at 200 and 600."""
    points = {"DAPO": [(0, 0.0, 0.1), (1, 200.0, 0.2), (3, 600.0, 0.4)], "MCPO": [(0, 0.0, 0.1), (3, 300.0, 0.25)]}
    points["MCPO"].append((4, 400.0, 0.3))
    set_scores(runs, monkeypatch, points)
    found = compare(runs, Choice(at=("rollouts",)))
    shown = found.paths[found.paths["seed"] == 0].set_index(["arm", "x"])
    assert shown["measured"].to_dict() == {
        ("DAPO", 0): True, ("DAPO", 200): True, ("DAPO", 400): False,
        ("MCPO", 0): True, ("MCPO", 200): False, ("MCPO", 300): True, ("MCPO", 400): True,
    }  # fmt: skip
    assert shown.loc[("MCPO", 300), "value"] == pytest.approx(0.25)
    # The rows of the CSV file are where all arms have a value.
    assert found.curves["x"].unique().tolist() == [0, 200, 400]


@pytest.mark.parametrize(
    ("choice", "named"),
    [
        (Choice(baseline="DAP"), ("--baseline DAP", "'DAPO'")),
        (Choice(metric="pass@3"), ("--metric pass@3",)),
        (Choice(at=("rollout",)), ("--at rollout", "'rollouts'")),
    ],
)
def test_an_unknown_choice_names_the_nearest_one(runs: Runs, choice: Choice, named: tuple[str, ...]) -> None:
    with refused("bad_input", *named):
        compare(runs, choice)


def test_a_cost_that_runs_did_not_record_is_refused_by_name_and_left_out_by_default(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = runs.scores(8)
    monkeypatch.setattr(Runs, "scores", lambda self, k: scores.assign(**{"cost/rollouts": float("nan")}))
    assert compare(runs, Choice()).axes == ["steps"]
    with refused("run_failed", "table1", "rollouts"):
        compare(runs, Choice(at=("rollouts",)))


def test_arms_with_other_seeds_are_refused(mcpo_home: object) -> None:
    plan = fakes.table1()
    lacking = Plan("table1", "fix", tuple(cell for cell in plan.cells if (cell.arm, cell.spec.seed) != ("MCPO", 2)))
    with refused("nothing_pairs"):
        compare(Runs(lacking), Choice())


def test_base_policies_and_seeds_are_pairs_and_their_variances_are_told_apart(mcpo_home: object) -> None:
    plan = fakes.table1("base_seed=0,1")
    found = compare(Runs(plan), Choice())
    assert set(found.headline["seeds"]) == {6}
    assert set(found.components["toy-s", "MCPO"].parts) == {"seed", "problem", "rest", "base"}


@pytest.mark.parametrize(
    ("mean", "p_holm", "level", "verdict"),
    [
        (0.1, 0.05, 0.05, "better"),
        (-0.1, 0.05, 0.05, "worse"),
        (-0.1, 0.06, 0.05, "undecided"),
        (0.1, 0.03, 0.02, "undecided"),
        (0.1, math.nan, 0.05, "undecided"),
    ],
)
def test_a_verdict_depends_on_p_adjusted_over_the_family(
    mean: float, p_holm: float, level: float, verdict: str
) -> None:
    assert comparison.verdict(mean, p_holm, level) == verdict


# Families: a difference that repeats another counts once.


def difference(at: str, arm: str, *by_seed: float, tier: str = "average", metric: str = "pass@1") -> Row:
    effect = stats.paired_t(by_seed)
    about = {"at": at, "model": "toy-s", "arm": arm, "tier": tier, "metric": metric}
    return about | {"mean": effect.mean, "p": effect.p, "by_seed": by_seed}


def test_equal_steps_and_equal_rollouts_count_once_where_they_are_one_comparison() -> None:
    one, other = (0.01, 0.02, 0.03), (0.05, 0.02, 0.03)
    family = [
        difference(at, arm, *values) for at in ("steps", "rollouts") for arm, values in (("a", one), ("b", other))
    ]
    found = adjusted(family, "headline")
    assert [row["test"] for row in found] == [0, 1, 0, 1]
    # t = .02 / (.01 / sqrt(3)) = 3.464, and for b .0333 / (.01528 / sqrt(3)) = 3.780; the smaller p is doubled.
    p_a, p_b = (scipy_stats.ttest_1samp(values, 0).pvalue for values in (one, other))
    assert [row["p_holm"] for row in found] == pytest.approx([max(p_a, 2 * p_b), 2 * p_b] * 2)


def test_differences_of_other_arms_tiers_metrics_or_values_are_tests_of_their_own() -> None:
    same = (0.01, 0.02, 0.03)
    family = [
        difference("steps", "a", *same),
        difference("steps", "b", *same),
        difference("steps", "a", *same, tier="k2-3"),
        difference("steps", "a", *same, metric="best@8"),
        difference("rollouts", "a", 0.01, 0.02, 0.04),
    ]
    found = adjusted(family, "others")
    assert [row["test"] for row in found] == list(range(5))
    assert found[0]["p_holm"] == pytest.approx(5 * min(row["p"] for row in family), rel=1)


def test_the_average_over_a_single_tier_is_not_counted_beside_the_tier(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = runs.scores(8)
    monkeypatch.setattr(Runs, "scores", lambda self, k: scores[scores["tier"] == "k2-3"])
    others = records(compare(runs, Choice()).differences, family="others")
    assert [(row["tier"], row["metric"]) for row in others] == [("k2-3", m) for m in ("pass@1", "best@8", "pass@8")]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 8])
def test_runs_of_one_method_are_called_different_in_one_comparison_of_twenty(seeds: int) -> None:
    """A/A: 200 comparisons of two arms whose scores come from one distribution, around a common value per seed."""
    trials, rng = 200, np.random.default_rng(seeds)
    level_MS, noise_AMS = rng.normal(0.4, 0.05, (trials, seeds)), rng.normal(0, 0.02, (2, trials, seeds))
    rows = [
        {"model": str(trial), "arm": arm, "base_seed": seed, "seed": seed, "tier": "k2-3", "step": step}
        | {"cost/rollouts": 100.0 * step, "pass@1": level_MS[trial, seed] + (step > 0) * noise_MS[trial, seed]}
        for trial in range(trials)
        for arm, noise_MS in zip(("DAPO", "MCPO"), noise_AMS, strict=True)
        for seed in range(seeds)
        for step in (0, 3)
    ]
    by_trial: dict[str, list[Row]] = {}
    for at in ("steps", "rollouts"):
        scores = equal_cost.by_run(equal_cost.at_equal(pd.DataFrame(rows), equal_cost.AXES[at], ["pass@1"]))
        for row in comparison.differences(at, scores, "DAPO"):
            by_trial.setdefault(row["model"], []).extend([row] if row["tier"] == "average" else [])
    found = [adjusted(family, "headline") for family in by_trial.values()]
    assert [[row["test"] for row in family] for family in found] == [[0, 0]] * trials
    called = sum(family[0]["verdict"] != "undecided" for family in found)
    # With probability .05 each, more than 18 of 200 happen in less than one of a hundred such tests.
    assert called <= scipy_stats.binom.ppf(0.99, trials, 0.05) == 18
