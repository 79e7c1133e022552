"""Power, numbers of seeds and levels of looks: against published tables and simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from mcpo_cli.statistics import power
from mcpo_cli.statistics.power import STAGES, look_level

LEVELS = tuple(look_level(stage, len(STAGES)) for stage in range(1, len(STAGES) + 1))


def power_of(effect: float, sd: float, seeds: int) -> float:
    """Power of a paired t-test."""
    return power.power(abs(effect) / sd * math.sqrt(seeds), seeds - 1)


def test_an_effect_too_small_to_be_found_needs_no_number() -> None:
    assert power.seeds_needed(0.0, 1.0) is None
    assert power.seeds_needed(1e-4, 1.0) is None
    assert power.seeds_needed(1e9, 1.0) == 2


@given(st.floats(0.01, 3), st.integers(2, 200))
def test_the_detectable_effect_is_found_with_that_power(sd: float, seeds: int) -> None:
    effect = power.detectable_effect(sd, seeds)
    assert power_of(effect, sd, seeds) == pytest.approx(power.POWER, abs=1e-9)
    needed = power.seeds_needed(-effect * (1 + 1e-6), sd)
    assert needed is not None
    assert needed <= seeds


@pytest.mark.parametrize(("sd", "seeds"), [(0.0, 3), (math.nan, 3), (1.0, 1)])
def test_what_has_no_power_is_refused(sd: float, seeds: int) -> None:
    with pytest.raises(ValueError, match="at least 2 seeds"):
        power.detectable_effect(sd, seeds)
    if seeds > 1:
        with pytest.raises(ValueError, match="standard deviation"):
            power.seeds_needed(0.1, sd)


def test_bounds_of_a_deviation_by_hand_and_by_coverage() -> None:
    # 2 s^2 / chi^2: the 10 % and 90 % quantiles of chi^2 with 2 degrees of freedom are -2 log .9 and -2 log .1.
    low, high = power.sd_bounds(0.03, 3)
    assert (low, high) == pytest.approx((0.03 / math.sqrt(-math.log(0.1)), 0.03 / math.sqrt(-math.log(0.9))))
    sds = np.random.default_rng(0).normal(0, 0.03, (2000, 5)).std(axis=1, ddof=1)
    bounds = [power.sd_bounds(sd, 5) for sd in sds]
    assert 0.77 <= np.mean([one <= 0.03 <= other for one, other in bounds]) <= 0.83


def test_the_range_of_seeds_is_that_of_the_deviation_and_not_of_the_effect_seen() -> None:
    low, high = power.sd_bounds(0.03, 3)
    assert power.seeds_range(0.02, 0.03, 3) == (power.seeds_needed(0.02, low), power.seeds_needed(0.02, high))
    assert power.seeds_range(1e-6, 0.03, 3) == (None, None)
    # The truth is in the range as often as the deviation is in its interval.
    truth, rng = power.seeds_needed(0.03, 0.03), np.random.default_rng(1)
    ranges = [power.seeds_range(0.03, sd, 3) for sd in rng.normal(0, 0.03, (200, 3)).std(axis=1, ddof=1)]
    assert truth is not None
    inside = [low is not None and low <= truth <= (high or truth) for low, high in ranges]
    assert 0.72 <= np.mean(inside) <= 0.9


# --- seeds in stages, and looks at growing data -----------------------------------------------------------------------


def p_values(diff_NS: np.ndarray) -> np.ndarray:
    """Two-sided p of the t-test after each stage."""
    stages = []
    for seeds in STAGES:
        seen = diff_NS[..., :seeds]
        t = np.abs(seen.mean(-1)) / seen.std(-1, ddof=1) * np.sqrt(seeds)
        stages.append(2 * special.stdtr(seeds - 1, -t))
    return np.stack(stages, axis=-1)


def share_found(p_NT: np.ndarray, levels: tuple[float, ...]) -> float:
    """Share of cases in which a stage finds a difference."""
    return float((p_NT <= np.array(levels)).any(axis=-1).mean())


def test_a_difference_that_is_not_there_is_found_in_less_than_a_twentieth_of_the_cases() -> None:
    p_NT = p_values(np.random.default_rng(0).normal(size=(100_000, max(STAGES))))
    assert 0.040 <= share_found(p_NT, LEVELS) <= 0.046
    # Three looks at .05 each.
    assert 0.11 <= share_found(p_NT, (0.05,) * 3) <= 0.12


def test_a_family_keeps_the_level_too() -> None:
    """Three arms that share a baseline; the smallest Holm-adjusted p of m is m times the smallest p."""
    rng = np.random.default_rng(1)
    baseline_N1S, arm_NAS = rng.normal(size=(30_000, 1, max(STAGES))), rng.normal(size=(30_000, 3, max(STAGES)))
    adjusted_NT = 3 * p_values(arm_NAS - baseline_N1S).min(axis=1)
    assert share_found(adjusted_NT, LEVELS) <= 0.05


def test_declared_looks_spend_what_obrien_and_fleming_spend() -> None:
    """The spent levels after each look, by hand: 2 - 2 Phi(1.96 / sqrt(i / n))."""
    for looks, spent in ((1, [0.05]), (2, [0.00557, 0.05]), (4, [0.00009, 0.00557, 0.02362, 0.05])):
        levels = [look_level(look, looks) for look in range(1, looks + 1)]
        assert np.cumsum(levels) == pytest.approx(spent, abs=1e-5)
    for wrong in ((0, 3), (4, 3)):
        with pytest.raises(ValueError, match="look"):
            look_level(*wrong)
