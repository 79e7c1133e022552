"""Comparisons where the truth is known: how often they find what is not there, and cover what is."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats as scipy_stats

from mcpo_cli.compare import differences
from mcpo_cli.compare.comparison import Question, compare
from mcpo_cli.compare.pairs import pair
from mcpo_cli.compare.scores import MEAN, Arm, Scores, Slice
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
    "5 runs against 5": (unpaired(5, 5), "seeds", 0.04),
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


def test_three_runs_against_more_are_warned_of_because_welchs_test_errs_more_often() -> None:
    """5.0 % at most are promised; of equal arms it finds 6 to 7 % different, and 2 % at level .01."""
    random = np.random.default_rng(0)
    p = scipy_stats.ttest_ind(
        random.normal(size=(20_000, 3)), random.normal(size=(20_000, 10)), axis=1, equal_var=False
    )
    assert 0.06 < np.mean(p.pvalue < 0.05) < 0.07
    assert 0.015 < np.mean(p.pvalue < 0.01) < 0.025
    for new, base, warned in ((3, 10, True), (3, 3, False), (4, 10, False)):
        arms = unpaired(new, base)(random, 0.0)
        warnings = compare([Slice(arms[::-1])], Question(over="seeds")).warnings
        assert any("3 runs against 10" in warning for warning in warnings) == warned
