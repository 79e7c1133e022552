"""The effect of a step on cohorts of mastered prompts: by hand, and independent of the size of cohorts."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from mcpo_cli.measures import mastery
from mcpo_cli.statistics import curves, stats

STEPS, ROLLS = 20, 16
Cohorts = list[np.ndarray]
"""Per step, prompts x 2: accuracies under the same and under the next policy."""


def test_swings_by_hand() -> None:
    """Means .5 and .8 change by .09; the variances of the means, .02 / 2 and .06 / 3, are subtracted."""
    values = [np.array([0.4, 0.6]), np.array([1.0]), np.array([0.6, 0.7, 1.1])]
    assert curves.swings(values) == pytest.approx(0.09 - 0.02 / 2 - 0.07 / 3)
    assert math.isnan(curves.swings(values[:2]))


def test_the_deepest_part_is_picked_by_one_half_and_measured_by_the_other() -> None:
    """Even prompts are highest in the second part, odd ones in the first."""
    values = [np.array([0.1, 0.5, 0.1, 0.7]), np.array([0.9, 0.3]), np.array([0.2])]
    assert curves.deepest(values, parts=2) == pytest.approx((0.3 + 0.1) / 2)
    assert math.isnan(curves.deepest(values, parts=3))


def simulated(
    rng: np.random.Generator, size: tuple[int, int], stability: float, shift_T: Sequence[float] | float = 0.0
) -> Cohorts:
    """Cohorts of a policy whose prompts miss 1 - Beta(stability, 1) each; `shift_T` of that is lost at each step."""
    cohorts_T = []
    for shift in np.broadcast_to(shift_T, STEPS):
        true_C = rng.beta(stability, 1, size=rng.integers(*size))
        later_C = np.clip(true_C - shift, 0, 1)
        cohorts_T.append(np.stack([rng.binomial(ROLLS, p) / ROLLS for p in (true_C, later_C)], axis=1))
    return cohorts_T


FEW, MANY = (4, 12), (20, 50)
EARLY = [0.15] * 4 + [0.02] * 16


STATISTICS = (mastery.gap, mastery.deepest, mastery.swings)


def rejected(few_R: Sequence[float], many_R: Sequence[float], seeds: int) -> float:
    """Share of the comparisons of `seeds` runs each in which a t-test at level .05 finds a difference."""
    difference = (np.array(few_R) - np.array(many_R)).reshape(-1, seeds)
    t = difference.mean(1) / difference.std(1, ddof=1) * math.sqrt(seeds)
    return float(np.mean(np.abs(t) > stats.special.stdtrit(seeds - 1, 0.975)))


@pytest.mark.parametrize(
    ("stability", "shift_T"),
    [
        ((25, 90), 0.0),
        pytest.param((60, 60), 0.0, marks=pytest.mark.slow),
        pytest.param((40, 40), 0.05, marks=pytest.mark.slow),
        pytest.param((40, 40), EARLY, marks=pytest.mark.slow),
    ],
)
def test_without_a_difference_verdicts_are_wrong_at_the_nominal_rate(
    stability: tuple[float, float], shift_T: Sequence[float] | float
) -> None:
    """One arm masters few prompts and the other many, of other stability; 450 runs each, 3 and 5 a comparison."""
    rng, runs = np.random.default_rng(7), 450
    few, many = (
        [simulated(rng, size, beta, shift_T) for _ in range(runs)]
        for size, beta in zip((FEW, MANY), stability, strict=True)
    )
    for statistic in STATISTICS:
        values = [[statistic(run) for run in arm] for arm in (few, many)]
        for seeds in (3, 5):
            wrong = rejected(*values, seeds)
            assert wrong <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / (runs // seeds)), (statistic.__name__, seeds)
