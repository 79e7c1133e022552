"""Comparisons of runs whose scores are set by hand: equal cost, families, verdicts, several base policies."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from mcpo_cli.compare import page, training_page, verdicts
from mcpo_cli.compare.comparison import Question, compare, records
from mcpo_cli.compare.runs import of_runs
from mcpo_cli.compare.scores import Arm, Metric, Scores, Slice
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.measures.frames import Runs
from mcpo_cli.render.product import Row
from mcpo_cli.statistics import difference_tests, stats
from mcpo_cli.statistics.difference_tests import PValues
from tests import fakes
from tests.errors import refused
from tests.scored import Point, evaluated

TIERS = ("k2-3", "k7-8")


def set_scores(runs: Runs, patch: pytest.MonkeyPatch, arms: dict[str, list[tuple[int, float, float]]]) -> None:
    """Give every run of an arm evaluations (step, rollouts, score), and MCPO's seed s the score plus s / 100."""

    def points(run: PlannedRun) -> list[Point]:
        more = run.spec.seed / 100 * (run.arm == "MCPO")
        return [(step, rollouts, dict.fromkeys(TIERS, score + more)) for step, rollouts, score in arms[run.arm]]

    evaluated(runs, patch, points)


def test_equal_steps_and_equal_rollouts_by_hand(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """DAPO samples twice as much per step: MCPO ends at the rollouts of DAPO's middle, half way from .2 to .4."""
    points = {"DAPO": [(0, 0.0, 0.1), (1, 200.0, 0.2), (3, 600.0, 0.4)], "MCPO": [(0, 0.0, 0.1), (3, 400.0, 0.25)]}
    set_scores(runs, monkeypatch, points)
    found = of_runs(runs, Question())
    assert found.axes == ["steps", "rollouts"]
    assert found.trained.where == {("steps", "toy-s"): 3.0, ("rollouts", "toy-s"): 400.0}
    headline = found.headline.set_index("at")
    # Seeds 0, 1, 2 add .00, .01, .02 to MCPO.
    assert headline["difference"].to_dict() == pytest.approx(
        {"steps": 0.25 + 0.01 - 0.4, "rollouts": 0.25 + 0.01 - 0.3}
    )
    assert headline.loc["rollouts", "by_seed"] == pytest.approx((-0.05, -0.04, -0.03))
    # The t statistics are .14 and .04 over .01 / sqrt(3); Holm doubles the smaller p.
    assert headline["p"].tolist() == pytest.approx([0.0016965, 0.0202041], rel=1e-3)
    assert headline["p_adjusted"].tolist() == pytest.approx([0.003393, 0.0202041], rel=1e-3)
    assert headline["verdict"].tolist() == ["worse", "worse"]


def test_what_would_settle_a_difference_is_said_at_each_cost(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"DAPO": [(0, 0.0, 0.1), (1, 200.0, 0.24), (3, 600.0, 0.27)], "MCPO": [(0, 0.0, 0.1), (3, 400.0, 0.25)]}
    set_scores(runs, monkeypatch, points)
    lines = page.settle(of_runs(runs, Question()))
    assert [line.partition(":")[0] for line in lines] == [
        "the mean, toy-s, equal steps",
        "the mean, toy-s, equal rollouts",
    ]


def test_nothing_is_extrapolated_and_a_choice_moves_the_headline(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"DAPO": [(0, 0.0, 0.1), (3, 600.0, 0.4)], "MCPO": [(0, 0.0, 0.1), (3, 400.0, 0.25)]}
    set_scores(runs, monkeypatch, points)
    found = of_runs(runs, Question("MCPO", ("best@8",), ("rollouts",)))
    assert (found.axes, found.baseline, found.metric) == (["rollouts"], "MCPO", "best@8")
    assert set(found.headline["arm"]) == {"DAPO"}
    curves = found.trained.curves
    assert curves["x"].max() == 400
    of_dapo = curves[(curves["arm"] == "DAPO") & (curves["x"] == 400)]["value"]
    ends = [1 - (1 - score - shift) ** 8 for score in (0.1, 0.4) for shift in (0.1, -0.1)]
    start, end = sum(ends[:2]) / 2, sum(ends[2:]) / 2
    assert of_dapo.tolist() == pytest.approx([start + (end - start) * 400 / 600] * 3)


def test_a_figure_shows_every_evaluation_of_an_arm_and_what_is_interpolated(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MCPO's evaluation after 300 rollouts is in its curve, although DAPO was evaluated only at 200 and 600."""
    points = {"DAPO": [(0, 0.0, 0.1), (1, 200.0, 0.2), (3, 600.0, 0.4)], "MCPO": [(0, 0.0, 0.1), (3, 300.0, 0.25)]}
    points["MCPO"].append((4, 400.0, 0.3))
    set_scores(runs, monkeypatch, points)
    found = of_runs(runs, Question(at=("rollouts",)))
    shown = found.trained.paths[found.trained.paths["seed"] == 0].set_index(["arm", "x"])
    assert shown["measured"].to_dict() == {
        ("DAPO", 0): True, ("DAPO", 200): True, ("DAPO", 400): False,
        ("MCPO", 0): True, ("MCPO", 200): False, ("MCPO", 300): True, ("MCPO", 400): True,
    }  # fmt: skip
    assert shown.loc[("MCPO", 300), "value"] == pytest.approx(0.25)
    # The rows of the CSV file are where all arms have a value.
    assert found.trained.curves["x"].unique().tolist() == [0, 200, 400]


@pytest.mark.parametrize(
    ("question", "named"),
    [
        (Question(baseline="DAP"), ("--baseline DAP", "'DAPO'")),
        (Question(metrics=("pass@3",)), ("--metric pass@3",)),
        (Question(at=("rollout",)), ("--at rollout", "'rollouts'")),
    ],
)
def test_an_unknown_choice_names_the_nearest_one(runs: Runs, question: Question, named: tuple[str, ...]) -> None:
    with refused("bad_input", *named):
        of_runs(runs, question)


def test_a_cost_that_runs_did_not_record_is_refused_by_name_and_left_out_by_default(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = runs.scores(8)
    monkeypatch.setattr(Runs, "scores", lambda self, k: scores.assign(**{"cost/rollouts": float("nan")}))
    assert of_runs(runs, Question()).axes == ["steps"]
    with refused("run_failed", "table1", "rollouts"):
        of_runs(runs, Question(at=("rollouts",)))


def test_arms_with_other_seeds_are_refused(table1: Plan) -> None:
    lacking = Plan("table1", "fix", tuple(run for run in table1.runs if (run.arm, run.spec.seed) != ("MCPO", 2)))
    with refused("nothing_pairs"):
        of_runs(Runs(lacking), Question())


def test_base_policies_and_seeds_are_pairs_which_also_get_the_interval_for_new_base_policies(
    mcpo_home: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MCPO's runs from base policies 0, 1 and 2 differ by .00, .02 and .07, and by seed."""
    runs = Runs(fakes.table1("base_seed=0,1,2"))

    def points(run: PlannedRun) -> list[Point]:
        more = (0.0, 0.02, 0.07)[run.spec.seed_of_base] + run.spec.seed / 100
        return [(step, 1.0 * step, dict.fromkeys(TIERS, 0.3 + more * (run.arm == "MCPO"))) for step in (0, 3)]

    evaluated(runs, monkeypatch, points)
    # Means of base policies over seeds 0, 1, 2: .01, .03, .08; t(2) = 4.303, sd = .036056, over the root of 3.
    found = of_runs(runs, Question())
    said = [line for line in training_page.remarks(found) if "base policies, which" in line]
    assert said == [
        "MCPO, toy-s: for other base policies too the change is +.040 ± .090 (runs share 3 base policies, which are "
        "the units)"
    ]
    assert set(found.headline["seeds"]) == {9}
    assert set(found.sources["source"]) == {"seed", "problem", "rest", "base"}


@pytest.mark.parametrize(
    ("difference", "p_values", "level", "word"),
    [
        (0.1, PValues(0.05), 0.05, "better"),
        (-0.1, PValues(0.05), 0.05, "worse"),
        (-0.1, PValues(0.06), 0.05, "undecided"),
        (0.1, PValues(0.03), 0.02, "undecided"),
        (0.1, PValues(), 0.05, "not testable"),
        (0.1, PValues(0.01, 0.001, 0.05), 0.05, "equivalent"),
        (0.1, PValues(0.2, 0.04, 0.2), 0.05, "not worse"),
    ],
)
def test_the_first_rule_that_applies_gives_the_word(
    difference: float, p_values: PValues, level: float, word: str
) -> None:
    assert difference_tests.word(difference, p_values, level) == word


# Families: a difference that repeats another counts once.


def difference(at: str, arm: str, *by_seed: float, benchmark: str = "average", metric: str = "pass@1") -> Row:
    effect = stats.paired_t(by_seed)
    about = {"at": at, "model": "toy-s", "arm": arm, "benchmark": benchmark, "metric": metric, "family": "headline"}
    p_values = {"p": effect.p, "p_not_worse": math.nan, "p_equivalent": math.nan}
    return about | p_values | {"difference": effect.mean, "by_seed": by_seed, "identical": False}


def adjusted(rows: list[Row]) -> list[Row]:
    return records(verdicts.decided(verdicts.numbered(rows)))


def test_equal_steps_and_equal_rollouts_count_once_where_they_are_one_comparison() -> None:
    one, other = (0.01, 0.02, 0.03), (0.05, 0.02, 0.03)
    found = adjusted(
        [difference(at, arm, *values) for at in ("steps", "rollouts") for arm, values in (("a", one), ("b", other))]
    )
    assert [row["test"] for row in found] == [0, 1, 0, 1]
    # t = .02 / (.01 / sqrt(3)) = 3.464, and for b .0333 / (.01528 / sqrt(3)) = 3.780; the smaller p is doubled.
    p_a, p_b = (scipy_stats.ttest_1samp(values, 0).pvalue for values in (one, other))
    assert [row["p_adjusted"] for row in found] == pytest.approx([max(p_a, 2 * p_b), 2 * p_b] * 2)


def test_differences_of_other_arms_tiers_metrics_or_values_are_tests_of_their_own() -> None:
    same = (0.01, 0.02, 0.03)
    found = adjusted(
        [
            difference("steps", "a", *same),
            difference("steps", "b", *same),
            difference("steps", "a", *same, benchmark="k2-3"),
            difference("steps", "a", *same, metric="best@8"),
            difference("rollouts", "a", 0.01, 0.02, 0.04),
        ]
    )
    assert [row["test"] for row in found] == list(range(5))


def test_one_tier_is_the_headline_and_its_other_metrics_are_others(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated(runs, monkeypatch, lambda run: [(step, step, {"k2-3": 0.4 + run.spec.seed / 100}) for step in (0, 3)])
    found = of_runs(runs, Question()).differences
    assert set(found["benchmark"]) == {"k2-3"}
    assert [row["metric"] for row in records(found, family="others")] == ["best@8", "pass@8"]
    assert {row["metric"] for row in records(found, family="headline")} == {"pass@1"}


def test_equal_scores_are_identical_and_have_no_p(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a setting without effect; a margin makes them no `equivalent`, because nothing is tested."""
    evaluated(runs, monkeypatch, lambda run: [(step, step, {"k2-3": 0.4 + run.spec.seed / 100}) for step in (0, 3)])
    found = of_runs(runs, Question(margin=0.02))
    assert set(found.differences["verdict"]) == {"identical"}
    assert found.differences[["p", "p_adjusted", "p_equivalent"]].isna().all(axis=None)
    assert "identical on toy-s" in page.sentences(found)[0]


def test_an_interval_without_0_that_correction_leaves_undecided_says_so(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tests with t = 5.65 and 5.82 and two degrees of freedom: p = .030 and .028, doubled above .05."""
    points = {"DAPO": [(0, 0.0, 0.1), (1, 200.0, 0.398), (3, 600.0, 0.4)], "MCPO": [(0, 0.0, 0.1), (3, 400.0, 0.4226)]}
    set_scores(runs, monkeypatch, points)
    found = of_runs(runs, Question())
    assert (found.headline["low"] > 0).all()
    assert set(found.headline["verdict"]) == {"undecided"}
    assert "undecided after correction for 2 tests on toy-s" in page.sentences(found)[0]


def test_a_margin_and_a_look_decide_runs_as_they_decide_logs(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """MCPO is .01 above DAPO, with a deviation of .01 over three seeds."""
    set_scores(runs, monkeypatch, {arm: [(0, 0.0, 0.2), (3, 300.0, 0.4)] for arm in ("DAPO", "MCPO")})
    (plain,) = records(of_runs(runs, Question(at=("steps",))).headline)
    assert (plain["difference"], plain["verdict"]) == (pytest.approx(0.01), "undecided")
    assert plain["needed_seeds"] > 3
    (row,) = records(of_runs(runs, Question(at=("steps",), margin=0.1)).headline)
    assert row["verdict"] == "equivalent"
    (early,) = records(of_runs(runs, Question(at=("steps",), margin=0.1, look=(1, 3))).headline)
    assert early["verdict"] == "undecided"
    assert early["high"] > row["high"]


def test_problems_whose_score_changed_are_listed_for_runs(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    set_scores(runs, monkeypatch, {"DAPO": [(0, 0.0, 0.2), (3, 300.0, 0.4)], "MCPO": [(0, 0.0, 0.2), (3, 300.0, 0.5)]})
    flips = of_runs(runs, Question()).flips
    assert flips[["benchmark", "problem"]].drop_duplicates().to_numpy().tolist() == [
        ["k2-3", "easy"], ["k2-3", "hard"], ["k7-8", "easy"], ["k7-8", "hard"]
    ]  # fmt: skip
    assert (flips["score"] - flips["baseline_score"]).tolist() == pytest.approx([0.11] * 4)


@pytest.mark.parametrize(("lost", "verdict"), [(5, "undecided"), (6, "worse")])
def test_five_problems_that_differ_are_powerless(lost: int, verdict: str) -> None:
    """All in one direction: a t of 5 lost problems of 100 has p .024, an exact test of five signs 2 / 2^5 = .0625."""
    base = np.ones((1, 100))
    sides = [Scores(("0",), tuple(map(str, range(100))), np.ones((1, 100), int), score_SP, score_SP)
             for score_SP in (base, np.where(np.arange(100) < lost, 0.0, base))]  # fmt: skip
    found = compare([Slice([Arm("base", {"b": sides[0]}), Arm("new", {"b": sides[1]})])], Question())
    (row,) = records(found.differences)
    assert (row["verdict"], row["gained"], row["lost"]) == (verdict, 0, lost)
    assert row["p"] == pytest.approx(max(2 / 2**lost, 0.0139 if lost == 6 else 0.0))
    assert ("it takes 6" in found.warnings[0]) == (lost == 5)


def test_pass_hat_k_is_the_chance_that_all_of_k_samples_are_correct() -> None:
    """Of 4 samples 3 are correct: C(3, 2) / C(4, 2) = .5 of the pairs are all correct, and none of the fours."""
    counts = np.array([[4, 4, 4]]), np.array([[3, 4, 1]])
    assert Metric.parse("pass^2").of_counts(*counts).tolist() == [[pytest.approx(0.5), 1.0, 0.0]]
    assert Metric.parse("pass^4").of_counts(*counts).tolist() == [[0.0, 1.0, 0.0]]
    assert str(Metric.parse("pass^2")) == "pass^2"
