"""Survival and time factors: by hand, by independent formulas, and their coverage."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpo_cli.statistics import curves
from mcpo_cli.statistics.stats import t_interval


def test_survival_by_hand() -> None:
    """6 at risk: 1 of 6 ends at 1, 1 of 5 at 2 (another leaves), 1 of 3 at 3, none at 4, the last one at 5."""
    found = curves.survival([1, 2, 2, 3, 4, 5], [True, True, False, True, False, True])
    assert found.time_T.tolist() == [1, 2, 3, 4, 5]
    assert found.share_T == pytest.approx([5 / 6, 5 / 6 * 4 / 5, 4 / 9, 4 / 9, 0])
    # Exponential Greenwood at t = 2: s^exp(-+ z sqrt(1/(6*5) + 1/(5*4)) / log s).
    error = 1.959964 * math.sqrt(1 / 30 + 1 / 20) / math.log(2 / 3)
    assert found.low_T[1] == pytest.approx((2 / 3) ** math.exp(-error), rel=1e-6)
    assert found.high_T[1] == pytest.approx((2 / 3) ** math.exp(error), rel=1e-6)
    assert np.isnan([found.low_T[-1], found.high_T[-1]]).all()


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=25))
def test_survival_is_the_product_over_those_at_risk(observations: list[tuple[int, bool]]) -> None:
    found = curves.survival(*zip(*observations, strict=True))
    assert found.time_T.tolist() == sorted({duration for duration, _ in observations})
    for time, share, low, high in zip(found.time_T, found.share_T, found.low_T, found.high_T, strict=True):
        left = 1.0
        for t in range(1, int(time) + 1):
            at_risk = sum(duration >= t for duration, _ in observations)
            ended = sum(duration == t and seen for duration, seen in observations)
            left *= 1 - ended / at_risk
        assert share == pytest.approx(left, abs=1e-12)
        assert math.isnan(low) or 0 <= low <= share <= high <= 1


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


def test_survival_covers_what_it_promises() -> None:
    """60 geometric durations, some of them cut off: 95 % nominal where a part of them is left."""
    rng, runs = np.random.default_rng(0), 600
    covered = []
    for _ in range(runs):
        duration, cut = rng.geometric(0.2, size=60), rng.integers(1, 12, size=60)
        found = curves.survival(np.minimum(duration, cut), duration <= cut)
        at = np.searchsorted(found.time_T, [2, 4])
        covered.append((found.low_T[at] <= 0.8 ** np.array([2, 4])) & (0.8 ** np.array([2, 4]) <= found.high_T[at]))
    rates = np.mean(covered, axis=0)
    assert ((rates >= 0.93) & (rates <= 0.97)).all()


def saturating(time_T: np.ndarray) -> np.ndarray:
    """Accuracy from .3 towards .7."""
    return 0.3 + 0.4 * (1 - np.exp(-time_T / 7))


STEPS = np.arange(20.0)


@pytest.mark.parametrize("common", [0.0, 0.03])
@pytest.mark.parametrize("planted", [0.6, 0.8, 1.0, 1.3])
def test_a_planted_time_factor_is_found_and_covered(planted: float, common: float) -> None:
    """common: noise that both arms have at a step, as they train on the same prompts."""
    rng, runs = np.random.default_rng(3), 200
    found = []
    for _ in range(runs):
        both_ST = common * rng.normal(size=(5, 20))
        baseline_ST, arm_ST = (
            saturating(c * STEPS) + both_ST + 0.01 * rng.normal(size=(5, 20)) for c in (1.0, planted)
        )
        found.append(curves.time_factor(baseline_ST, arm_ST, STEPS))
    assert np.mean([factor.factor for factor in found]) == pytest.approx(planted, rel=0.02)
    assert 0.9 <= np.mean([factor.low <= planted <= factor.high for factor in found]) <= 0.99
    assert np.mean([factor.high - factor.low for factor in found]) < 0.2


def test_seeds_that_differ_widen_the_interval() -> None:
    own_S = np.array([0.7, 0.8, 0.9])
    curves_ST = saturating(own_S[:, None] * STEPS)
    found = curves.time_factor(np.tile(saturating(STEPS), (3, 1)), curves_ST, STEPS)
    by_seed = [curves.time_factor(saturating(STEPS)[None], curve_T[None], STEPS).factor for curve_T in curves_ST]
    assert by_seed == pytest.approx(own_S, rel=0.01)
    expected = t_interval(np.log(by_seed))
    assert (found.factor, found.low, found.high) == pytest.approx(
        (math.exp(expected.mean), math.exp(expected.low), math.exp(expected.high))
    )


def test_a_curve_is_as_fast_as_itself() -> None:
    curve_ST = saturating(STEPS) + 0.02 * np.random.default_rng(0).normal(size=(4, 20))
    found = curves.time_factor(curve_ST, curve_ST, STEPS)
    assert found == curves.TimeFactor(1.0, 1.0, 1.0)


@given(st.integers(0, 2**32 - 1))
def test_exchanging_the_arms_inverts_the_factor(seed: int) -> None:
    rng = np.random.default_rng(seed)
    step_T = np.concatenate([[0], np.cumsum(rng.uniform(0.5, 3, 12))])
    first_ST, second_ST = (saturating(step_T) + 0.02 * rng.normal(size=(1, 13)) for _ in range(2))
    one = curves.time_factor(first_ST, second_ST, step_T)
    other = curves.time_factor(second_ST, first_ST, step_T)
    assert one.factor * other.factor == pytest.approx(1, rel=1e-6)
    longer = curves.time_factor(first_ST, second_ST, 10 * step_T)
    assert longer.factor == pytest.approx(one.factor, rel=1e-6)


def test_curves_that_determine_no_factor_have_none() -> None:
    flat_ST, rising_ST = np.full((2, 20), 0.3), np.tile(saturating(STEPS), (2, 1))
    for baseline_ST, arm_ST in ((flat_ST, flat_ST), (rising_ST, flat_ST), (rising_ST, saturating(9 * STEPS)[None])):
        found = curves.time_factor(baseline_ST[: len(arm_ST)], arm_ST, STEPS)
        assert np.isnan([found.factor, found.low, found.high]).all()


def test_one_seed_has_a_factor_but_no_interval() -> None:
    found = curves.time_factor(saturating(STEPS)[None], saturating(0.8 * STEPS)[None], STEPS)
    assert found.factor == pytest.approx(0.8, rel=0.01)
    assert np.isnan([found.low, found.high]).all()


@pytest.mark.parametrize(
    ("baseline", "arm", "steps", "part"),
    [
        ((2, 3), (2, 3), [0, 1, 2], "at least 4"),
        ((2, 4), (2, 4), [1, 2, 3, 4], "from 0"),
        ((2, 4), (2, 4), [0, 2, 2, 3], "rising"),
        ((2, 4), (3, 4), [0, 1, 2, 3], "one shape"),
        ((2, 5), (2, 5), [0, 1, 2, 3], "one shape"),
        ((0, 4), (0, 4), [0, 1, 2, 3], "one seed"),
    ],
)
def test_time_factor_refuses_what_it_cannot_compare(
    baseline: tuple[int, int], arm: tuple[int, int], steps: list[int], part: str
) -> None:
    with pytest.raises(ValueError, match=part):
        curves.time_factor(np.zeros(baseline), np.zeros(arm), steps)


def test_time_factor_refuses_a_gap() -> None:
    curve_ST = saturating(STEPS)[None]
    with pytest.raises(ValueError, match="NaN"):
        curves.time_factor(curve_ST, np.where(STEPS == 3, np.nan, curve_ST), STEPS)
