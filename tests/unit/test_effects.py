"""Aggregates over tasks and the probability of improvement: by hand and by rliable."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rliable import metrics

from mcpo_cli.statistics import effects, stats

SHAPES = st.tuples(st.integers(2, 6), st.integers(1, 4))
AGGREGATES = {effects.mean: metrics.aggregate_mean, effects.interquartile_mean: metrics.aggregate_iqm}


def test_by_hand() -> None:
    one, other = np.array([[0.1, 0.9], [0.3, 0.5]]), np.array([[0.6], [0.0]])
    assert effects.mean([one, other]).value == pytest.approx((0.2 + 0.7 + 0.3) / 3)
    # Without the first and the last quarter of 0, .1, .3, .5, .6, .9: one value each.
    assert effects.interquartile_mean([one, other]).value == pytest.approx((0.1 + 0.3 + 0.5 + 0.6) / 4)
    # Task 1: .1 and .3 against .2 twice, half of the pairs. Task 2: .9 wins twice, .5 wins once and once draws.
    found = effects.probability_of_improvement([one], [np.array([[0.2, 0.5], [0.2, 0.4]])])
    assert found.value == pytest.approx((2 / 4 + 3.5 / 4) / 2)


@given(SHAPES, st.integers(0, 2**32 - 1))
def test_values_are_those_of_rliable_and_bounds_lie_around_them_within_0_and_1(
    shape: tuple[int, int], seed: int
) -> None:
    # Rounded, so that there are ties.
    x_SN, y_SN = np.random.default_rng(seed).uniform(size=(2, *shape)).round(1)
    found = [(ours([x_SN]), theirs(x_SN)) for ours, theirs in AGGREGATES.items()]
    won = effects.probability_of_improvement([x_SN], [y_SN])
    for ours, expected in [*found, (won, metrics.probability_of_improvement(x_SN, y_SN))]:
        assert ours.value == pytest.approx(expected)
        assert math.isnan(ours.low) == (shape[0] < stats.LEAST)
        assert math.isnan(ours.low) or 0 <= ours.low <= ours.value + 1e-12 <= ours.high + 2e-12 <= 1 + 4e-12


def test_the_interval_of_one_task_is_wilsons_with_the_variance_of_the_runs() -> None:
    score = np.array([0.40, 0.50, 0.54, 0.44])
    found = effects.mean([score[:, None]])
    assert (found.low, found.high) == stats.share_interval(score.mean(), score.var(ddof=1) / 4, 4, 3)


def test_runs_are_one_observation_each() -> None:
    """Tasks with equal scores of each run add no information: the interval is that of one task."""
    score_SN = np.random.default_rng(0).uniform(0.3, 0.7, size=(5, 1))
    one, four = (effects.mean([np.repeat(score_SN, n, axis=1)]) for n in (1, 4))
    assert (four.low, four.high) == pytest.approx((one.low, one.high))
    apart = effects.mean([score_SN] * 4)
    assert apart.high - apart.low < 0.7 * (one.high - one.low)


def test_equal_scores_have_the_interval_of_the_problems_behind_them() -> None:
    few, many = (effects.mean([np.ones((3, 1))], trials=trials) for trials in (1, 1000))
    assert few.high == many.high == 1
    assert few.low < 0.2
    assert many.low > 0.99


def test_two_runs_have_a_value_but_no_interval() -> None:
    two, three = np.array([[0.4, 0.6], [0.5, 0.6]]), np.array([[0.1, 0.7], [0.2, 0.8], [0.3, 0.9]])
    found = effects.probability_of_improvement([two], [three])
    assert found.value == 0.5
    assert math.isnan(found.low)
    assert math.isnan(effects.mean([two]).high)


@pytest.mark.parametrize(
    "strata", [[], [np.zeros((0, 2))], [np.zeros(3)], [np.array([[np.nan]])], [np.full((3, 1), 2.0)]]
)
def test_what_has_no_aggregate_is_refused(strata: list[np.ndarray]) -> None:
    with pytest.raises(ValueError, match=r"non-empty|0\.\.1"):
        effects.mean(strata)
    with pytest.raises(ValueError, match="same strata"):
        effects.probability_of_improvement([np.zeros((2, 2))], [np.zeros((2, 3))])
