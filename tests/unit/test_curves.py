"""Survival: by an independent formula (worked numbers: tests/golden/test_oracles.py)."""

import math

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
