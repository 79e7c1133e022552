"""Scores before training: arms that end below them, runs that collapsed, and the words for differences then."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pytest

from mcpo_cli.compare import equal_cost, training, training_page
from mcpo_cli.compare.comparison import Comparison, Question, records
from mcpo_cli.compare.equal_cost import BEFORE
from mcpo_cli.compare.runs import of_runs
from mcpo_cli.config.plan import from_suite
from mcpo_cli.measures.frames import Runs
from mcpo_cli.statistics import effects
from mcpo_cli.statistics.words import Word
from tests.scored import evaluated

SEEDS = 3
TIERS = ("k2-3", "k7-8")


def compared(
    runs: Runs, patch: pytest.MonkeyPatch, before: Mapping[str, Sequence[float]], end: Mapping[str, Sequence[float]]
) -> Comparison:
    """The comparison of runs with these scores before and after training, by arm and seed; k7-8 is .1 below k2-3."""
    evaluated(
        runs,
        patch,
        lambda run: [
            (step, 100.0 * step, dict(zip(TIERS, (score + 0.05, score - 0.05), strict=True)))
            for step, score in ((0, before[run.arm][run.spec.seed]), (3, end[run.arm][run.spec.seed]))
        ],
    )
    return of_runs(runs, Question())


def test_arms_are_measured_from_the_mean_of_what_they_evaluated_before_training(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DAPO's and MCPO's samples of one base policy differ: its score is their mean, .40, .41 and .42 by seed."""
    found = compared(
        runs,
        monkeypatch,
        {"DAPO": [0.39, 0.41, 0.43], "MCPO": [0.41, 0.41, 0.41]},
        {"DAPO": [0.40, 0.38, 0.36], "MCPO": [0.50, 0.51, 0.52]},
    )
    (average,) = records(found.trained.before, benchmark="average", metric="pass@1")
    assert (average["arm"], average["seeds"]) == (BEFORE, SEEDS)
    expected = effects.mean([np.array([[0.40], [0.41], [0.42]])])
    assert (average["mean"], average["low"]) == pytest.approx((0.41, expected.low))
    assert [one["mean"] for one in records(found.trained.before, metric="pass@1")] == pytest.approx([0.46, 0.36, 0.41])

    dapo, mcpo = (found.trained.gain("steps", "toy-s", arm) for arm in ("DAPO", "MCPO"))
    # .40 - .40, .38 - .41, .36 - .42: 0, -.03, -.06, whose interval is -.03 +- 4.303 * .03 / sqrt(3).
    assert (dapo["before"], dapo["mean"]) == pytest.approx((0.41, -0.03))
    assert dapo["half_width"] == pytest.approx(4.302653 * 0.03 / 3**0.5, rel=1e-6)
    assert dapo["mark"] == "<"
    assert mcpo["mean"] == pytest.approx(0.10)
    assert mcpo["mark"] == ""
    assert "DAPO (-.030 ± .075)" in next(training_page.sentences(found))


def test_an_interval_below_the_base_policy_gets_the_stronger_mark(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    start = {"DAPO": [0.4, 0.4, 0.4], "MCPO": [0.4, 0.4, 0.4]}
    found = compared(runs, monkeypatch, start, {"DAPO": [0.30, 0.31, 0.32], "MCPO": [0.35, 0.37, 0.36]})
    assert set(found.trained.gains["mark"]) == {"<<"}
    # .05, .06 and .04: t is .05 over .01 / sqrt(3), p is .013.
    assert found.trained.in_words(records(found.headline)[0], "DAPO") == "loses less than DAPO"


def test_arms_that_start_from_other_policies_are_measured_from_their_own(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in runs.planned:
        # A cached property of a frozen spec: another warm-up has another id.
        monkeypatch.setitem(run.spec.__dict__, "base_id", f"{run.arm} {run.spec.seed}")
    found = compared(
        runs,
        monkeypatch,
        {"DAPO": [0.2, 0.2, 0.2], "MCPO": [0.4, 0.4, 0.4]},
        {"DAPO": [0.3, 0.3, 0.3], "MCPO": [0.3, 0.3, 0.3]},
    )
    starts = {one["arm"]: one["mean"] for one in records(found.trained.before, benchmark="average", metric="pass@1")}
    assert starts == pytest.approx({f"{BEFORE} (DAPO)": 0.2, f"{BEFORE} (MCPO)": 0.4})
    gained = {arm: found.trained.gain("steps", "toy-s", arm)["mean"] for arm in ("DAPO", "MCPO")}
    assert gained == pytest.approx({"DAPO": 0.1, "MCPO": -0.1})


def test_a_run_that_ends_below_half_of_its_base_policy_collapsed_and_counts_like_any_other(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = {"DAPO": [0.4, 0.4, 0.4], "MCPO": [0.4, 0.4, 0.4]}
    found = compared(runs, monkeypatch, start, {"DAPO": [0.4, 0.4, 0.4], "MCPO": [0.41, 0.19, 0.21]})
    assert [(run["arm"], run["seed"]) for run in records(found.trained.runs, outcome="collapsed")] == [("MCPO", 1)]
    assert found.headline["by_seed"].iloc[0] == pytest.approx((0.01, -0.21, -0.19))
    done = {row[2]: row[-3:] for row in training_page.gains_grid(found).rows}
    assert done == {"DAPO": ["3", "0", "0"], "MCPO": ["2", "1", "0"]}


@pytest.mark.parametrize(
    ("verdict", "mine", "theirs", "said"),
    [
        ("better", 0.1, 0.05, "gains more than DAPO"),
        ("worse", 0.05, 0.1, "gains less than DAPO"),
        ("better", -0.05, -0.1, "loses less than DAPO"),
        ("worse", -0.1, -0.05, "loses more than DAPO"),
        ("better", 0.05, -0.05, "gains where DAPO loses"),
        ("worse", -0.05, 0.05, "loses where DAPO gains"),
        ("undecided", -0.1, -0.05, "undecided against DAPO"),
    ],
)
def test_an_arm_that_ends_below_its_base_policy_never_gains(
    verdict: Word, mine: float, theirs: float, said: str
) -> None:
    assert training.gained(verdict, mine < 0, theirs < 0, "DAPO") == said


def test_seeds_of_one_base_policy_keep_their_own_evaluations() -> None:
    plan = from_suite("table1", ["scale=smoke", "model=toy-s", "base_seed=0"], "mcpo reproduce table1")
    rows = [
        {"model": "toy-s", "arm": run.arm, "base_seed": 0, "seed": run.spec.seed, "tier": "easy", "step": 0}
        | {"pass@1": 0.4 + run.spec.seed / 100}
        for run in plan.runs
    ]
    names, scores = equal_cost.base_policies(pd.DataFrame(rows), plan.runs, ["pass@1"])
    assert set(names.values()) == {BEFORE}
    assert scores.loc[scores["tier"] == "average", "value"].tolist() == pytest.approx([0.4, 0.41, 0.42])


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "least", "most"), [(3, 0.48, 0.73), (6, 0.73, 0.74), (12, 0.92, 0.92)])
def test_where_a_fifth_of_the_runs_collapses_the_interval_of_an_arm_covers_what_its_note_says(
    seeds: int, least: float, most: float
) -> None:
    """A collapse takes .4 to .1; runs vary by .01 to .03 besides."""
    truth, covered = 0.4 - 0.2 * 0.3, []
    for spread in (0.01, 0.02, 0.03):
        rng = np.random.default_rng(1)
        score_RS = rng.normal(0.4, spread, (3000, seeds)) - 0.3 * (rng.random((3000, seeds)) < 0.2)
        found = [effects.mean([score_S[:, None]], 600) for score_S in np.clip(score_RS, 0, 1)]
        covered.append(np.mean([one.low <= truth <= one.high for one in found]))
    assert (min(covered), max(covered)) == pytest.approx((least, most), abs=0.025)
