"""The effect of a step on cohorts of mastered prompts: by hand."""

import math

import numpy as np
import pytest

from mcpo_cli.statistics import curves


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
