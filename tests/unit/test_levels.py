"""Comparisons where the truth is known: how often they find what is not there, and cover what is."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats as scipy_stats

from mcpo_cli.compare import differences
from mcpo_cli.compare.comparison import Question, compare
from mcpo_cli.compare.pairs import pair
from mcpo_cli.compare.scores import MEAN, Arm, Scores, Slice
from mcpo_cli.statistics import crossed
from mcpo_cli.statistics.crossed import Over
from mcpo_cli.statistics.stats import Floats

TRIALS = 1000
Draw = Callable[[np.random.Generator, float], tuple[Arm, Arm]]
"""Draws the new arm, whose true mean is higher by the number given, and the baseline."""


def arm(name: str, score_SP: Floats, clusters: tuple[str, ...] = ()) -> Arm:
    seeds, problems = (
        tuple(f"{name}{at}" for at in range(score_SP.shape[0])),
        tuple(map(str, range(score_SP.shape[1]))),
    )
    scores = Scores(seeds, problems, np.ones(score_SP.shape, int), score_SP, score_SP**2, clusters=clusters)
    return Arm(name, {"b": scores})


def continuous(random: np.random.Generator, lift: float) -> tuple[Arm, Arm]:
    """Skewed scores of any range, one of each problem, that share what the problem is."""
    problem_P = random.gamma(2, 3, 60)
    new_P, base_P = (problem_P + shift + random.gamma(1, 2, 60) for shift in (lift, 0.0))
    return arm("new", new_P[None]), arm("base", base_P[None])


def clustered(random: np.random.Generator, lift: float) -> tuple[Arm, Arm]:
    """40 passages of 1 to 8 questions: on all questions of a passage an arm is better or worse by as much."""
    passage_P = np.repeat(np.arange(40), random.integers(1, 9, 40))
    names = tuple(f"passage {at}" for at in passage_P)
    scores = [
        (0.5 + shift + 0.2 * random.normal(size=40)[passage_P] + 0.1 * random.normal(size=len(names)))[None]
        for shift in (lift, 0.0)
    ]
    return arm("new", scores[0], names), arm("base", scores[1], names)


def clustered_answers(random: np.random.Generator, lift: float) -> tuple[Arm, Arm]:
    """Right or wrong answers to 40 passages of 4 questions."""
    names = tuple(f"passage {at // 4}" for at in range(160))
    chances = [0.55 + shift + random.uniform(-0.3, 0.3, 40).repeat(4) for shift in (lift, 0.0)]
    new, base = ((random.random((1, 160)) < chance_P).astype(float) for chance_P in chances)
    return arm("new", new, names), arm("base", base, names)


def unpaired(new: int, base: int) -> Draw:
    """One value of each run."""

    def draw(random: np.random.Generator, lift: float) -> tuple[Arm, Arm]:
        values = [random.normal(2.3 + shift, 0.05, (runs, 1)) for shift, runs in ((lift, new), (0.0, base))]
        return arm("new", values[0]), arm("base", values[1])

    return draw


KINDS: dict[str, tuple[Draw, Over, float]] = {
    "continuous": (continuous, "both", 0.4),
    "clustered": (clustered, "both", 0.05),
    "clustered answers": (clustered_answers, "both", 0.1),
    "4 runs against 10": (unpaired(4, 10), "seeds", 0.04),
}
"""By kind of data: how arms are drawn, what intervals are about, and a difference that is there."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_level_is_kept_and_intervals_cover_the_truth(kind: str) -> None:
    draw, over, lift = KINDS[kind]
    random, found = np.random.default_rng(11), []
    for truth in (0.0, lift):
        for _ in range(TRIALS):
            row = differences.tested(pair(*draw(random, truth), "b"), MEAN, Question(), over)
            found.append((truth, row["p"] <= 0.05, row["low"] <= truth <= row["high"]))
    assert sum(called for truth, called, _ in found if truth == 0) <= 0.06 * TRIALS
    assert 0.93 <= np.mean([covered for _, _, covered in found]) <= 0.97


def test_three_runs_against_more_are_warned_of() -> None:
    """There Welch's test finds 6 to 7 % of equal arms different, not 5."""
    random = np.random.default_rng(0)
    for new, base, warned in ((3, 10, True), (3, 3, False), (4, 10, False)):
        arms = unpaired(new, base)(random, 0.0)
        warnings = compare([Slice(arms[::-1])], Question(over="seeds")).warnings
        assert any("3 runs against 10" in warning for warning in warnings) == warned


# --- a new run against a history of runs ------------------------------------------------------------------------------


def test_the_interval_is_students_prediction_interval() -> None:
    """Six earlier runs and two new ones of 2 problems, by hand and by the t distribution."""
    means_S = np.array([0.50, 0.54, 0.46, 0.52, 0.48, 0.56])
    old_SP = np.stack([means_S - 0.1, means_S + 0.1], axis=1)
    for new in ([0.60], [0.60, 0.62]):
        new_SP = np.stack([np.array(new)] * 2, axis=1)
        found = crossed.difference(new_SP, old_SP, same_seeds=False, over="history")
        # The squares around .51 sum to .0070, so the variance is .0014.
        error = math.sqrt(0.0014 * (1 / 6 + 1 / len(new)))
        assert (found.test.mean, found.test.error) == pytest.approx((np.mean(new) - 0.51, error), abs=1e-12)
        assert found.test.interval().half_width == pytest.approx(scipy_stats.t.ppf(0.975, 5) * error, abs=1e-12)
        p = 2 * scipy_stats.t.sf((np.mean(new) - 0.51) / error, 5)
        assert 2 * found.test.p_above() == pytest.approx(p, abs=1e-12)
    assert (found.over, found.seeds) == ("history", (6,))
    few = crossed.difference(new_SP, old_SP[:1], same_seeds=False, over="history")
    assert math.isnan(few.test.interval().half_width)


@pytest.mark.parametrize(("runs", "kind"), [(3, "binary"), (5, "two benchmarks"), (20, "continuous")])
def test_a_run_like_the_earlier_ones_is_outside_in_one_case_of_twenty(runs: int, kind: str) -> None:
    """Runs differ by .3 logits, or by .05; the problems are the same for all runs of a history."""
    random = np.random.default_rng(runs)
    stratum_P = np.repeat([0, 1], [80, 20]) if kind == "two benchmarks" else None
    outside = []
    for _ in range(TRIALS):
        level_P, run_S = random.normal(size=100), random.normal(size=(runs + 1, 1))
        chance_SP = 1 / (1 + np.exp(-level_P - 0.3 * run_S))
        score_SP = (random.random(chance_SP.shape) < chance_SP).astype(float)
        if kind == "continuous":
            score_SP = 5 + level_P + 0.05 * run_S + 0.2 * random.normal(size=chance_SP.shape)
        found = crossed.difference(score_SP[:1], score_SP[1:], stratum_P, same_seeds=False, over="history")
        outside.append(2 * min(found.test.p_above(), found.test.p_below()) <= 0.05)
    # 1,000 trials at level .05 are within .037 to .064 in 19 of 20 cases.
    assert 0.03 <= np.mean(outside) <= 0.065
