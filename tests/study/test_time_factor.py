"""Speed of learning: planted factors are found and covered, and exchanging the curves inverts them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcpo_study.analysis.why_reweight.time_factor import TimeFactor, time_factor

from mcpo_cli.statistics.stats import t_interval


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
        found.append(time_factor(baseline_ST, arm_ST, STEPS))
    assert np.mean([factor.factor for factor in found]) == pytest.approx(planted, rel=0.02)
    assert 0.9 <= np.mean([factor.low <= planted <= factor.high for factor in found]) <= 0.99
    assert np.mean([factor.high - factor.low for factor in found]) < 0.2


def test_seeds_that_differ_widen_the_interval() -> None:
    own_S = np.array([0.7, 0.8, 0.9])
    curves_ST = saturating(own_S[:, None] * STEPS)
    found = time_factor(np.tile(saturating(STEPS), (3, 1)), curves_ST, STEPS)
    by_seed = [time_factor(saturating(STEPS)[None], curve_T[None], STEPS).factor for curve_T in curves_ST]
    assert by_seed == pytest.approx(own_S, rel=0.01)
    expected = t_interval(np.log(by_seed))
    assert (found.factor, found.low, found.high) == pytest.approx(
        (math.exp(expected.mean), math.exp(expected.low), math.exp(expected.high))
    )


def test_a_curve_is_as_fast_as_itself() -> None:
    curve_ST = saturating(STEPS) + 0.02 * np.random.default_rng(0).normal(size=(4, 20))
    found = time_factor(curve_ST, curve_ST, STEPS)
    assert found == TimeFactor(1.0, 1.0, 1.0)


@given(st.integers(0, 2**32 - 1))
def test_exchanging_the_arms_inverts_the_factor(seed: int) -> None:
    rng = np.random.default_rng(seed)
    step_T = np.concatenate([[0], np.cumsum(rng.uniform(0.5, 3, 12))])
    first_ST, second_ST = (saturating(step_T) + 0.02 * rng.normal(size=(1, 13)) for _ in range(2))
    one = time_factor(first_ST, second_ST, step_T)
    other = time_factor(second_ST, first_ST, step_T)
    assert one.factor * other.factor == pytest.approx(1, rel=1e-6)
    longer = time_factor(first_ST, second_ST, 10 * step_T)
    assert longer.factor == pytest.approx(one.factor, rel=1e-6)


def test_curves_that_determine_no_factor_have_none() -> None:
    flat_ST, rising_ST = np.full((2, 20), 0.3), np.tile(saturating(STEPS), (2, 1))
    for baseline_ST, arm_ST in ((flat_ST, flat_ST), (rising_ST, flat_ST), (rising_ST, saturating(9 * STEPS)[None])):
        found = time_factor(baseline_ST[: len(arm_ST)], arm_ST, STEPS)
        assert np.isnan([found.factor, found.low, found.high]).all()


def test_one_seed_has_a_factor_but_no_interval() -> None:
    found = time_factor(saturating(STEPS)[None], saturating(0.8 * STEPS)[None], STEPS)
    assert found.factor == pytest.approx(0.8, rel=0.01)
    assert np.isnan([found.low, found.high]).all()
