"""Survival by an independent formula (worked numbers: tests/golden/test_oracles.py); cohorts and costs by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpo_cli.statistics import curves


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=25))
def test_survival_is_the_product_over_those_at_risk(observations: list[tuple[int, bool]]) -> None:
    found = curves.survival(*zip(*observations, strict=True))
    assert found.time_T.tolist() == sorted({duration for duration, _ in observations})
    for time, share in zip(found.time_T, found.share_T, strict=True):
        left = 1.0
        for t in range(1, int(time) + 1):
            at_risk = sum(duration >= t for duration, _ in observations)
            ended = sum(duration == t and seen for duration, seen in observations)
            left *= 1 - ended / at_risk
        assert share == pytest.approx(left, abs=1e-12)


def test_the_restricted_mean_of_complete_durations_is_their_mean() -> None:
    found = curves.survival([1, 2, 2, 4], [True] * 4)
    assert found.restricted_mean(10) == pytest.approx(9 / 4)
    assert found.restricted_mean(3) == pytest.approx((1 + 2 + 2 + 3) / 4)
    assert curves.survival([5, 5], [False, True]).restricted_mean(8) == pytest.approx(5 + 3 / 2)


@pytest.mark.parametrize(
    ("duration", "observed"), [([], []), ([1.0], [True, False]), ([math.nan], [True]), ([math.inf], [False])]
)
def test_survival_refuses_what_is_no_duration(duration: list[float], observed: list[bool]) -> None:
    with pytest.raises(ValueError, match="durations must"):
        curves.survival(duration, observed)


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


def test_a_score_at_a_cost_by_hand() -> None:
    assert curves.at_cost([0, 100, 300], [0.2, 0.4, 0.8], 100) == 0.4
    assert curves.at_cost([0, 100, 300], [0.2, 0.4, 0.8], 150) == pytest.approx(0.5)
    assert math.isnan(curves.at_cost([50, 100], [0.2, 0.4], 49))
    assert math.isnan(curves.at_cost([0, 100], [0.2, 0.4], 100.5))
    with pytest.raises(ValueError, match="costs must rise"):
        curves.at_cost([0, 0], [0.2, 0.4], 0)
    with pytest.raises(ValueError, match="needs a score"):
        curves.at_cost([0, 1], [0.2], 0)
