"""Seeds in stages: the level of all stages together, and the seeds that they save."""

import numpy as np
import pytest
from scipy import special

from mcpo_cli.statistics.sequential import LEVELS, STAGES, look_level


def p_values(diff_NS: np.ndarray) -> np.ndarray:
    """Two-sided p of the t-test after each stage."""
    stages = []
    for seeds in STAGES:
        seen = diff_NS[..., :seeds]
        t = np.abs(seen.mean(-1)) / seen.std(-1, ddof=1) * np.sqrt(seeds)
        stages.append(2 * special.stdtr(seeds - 1, -t))
    return np.stack(stages, axis=-1)


def found(p_NT: np.ndarray, levels: tuple[float, ...]) -> float:
    """Share of cases in which a stage finds a difference."""
    return float((p_NT <= np.array(levels)).any(axis=-1).mean())


def test_the_levels_sum_to_five_percent() -> None:
    assert sum(LEVELS) == pytest.approx(0.05)


def test_a_difference_that_is_not_there_is_found_in_less_than_a_twentieth_of_the_cases() -> None:
    p_NT = p_values(np.random.default_rng(0).normal(size=(100_000, max(STAGES))))
    assert 0.042 <= found(p_NT, LEVELS) <= 0.047
    # Three looks at .05 each, and the levels that rely on the dependence of the stages.
    assert 0.11 <= found(p_NT, (0.05,) * 3) <= 0.13
    assert 0.048 <= found(p_NT, (0.0176, 0.0158, 0.0234)) <= 0.053


def test_a_family_keeps_the_level_too() -> None:
    """Three arms that share a baseline; the smallest Holm-adjusted p of m is m times the smallest p."""
    rng = np.random.default_rng(1)
    baseline_N1S, arm_NAS = rng.normal(size=(30_000, 1, max(STAGES))), rng.normal(size=(30_000, 3, max(STAGES)))
    adjusted_NT = 3 * p_values(arm_NAS - baseline_N1S).min(axis=1)
    assert found(adjusted_NT, LEVELS) <= 0.05


def test_declared_looks_spend_what_obrien_and_fleming_spend() -> None:
    """The spent levels after each look, by hand: 2 - 2 Phi(1.96 / sqrt(i / n))."""
    for looks, spent in ((1, [0.05]), (2, [0.00557, 0.05]), (4, [0.00009, 0.00557, 0.02362, 0.05])):
        levels = [look_level(look, looks) for look in range(1, looks + 1)]
        assert np.cumsum(levels) == pytest.approx(spent, abs=1e-5)
    for wrong in ((0, 3), (4, 3)):
        with pytest.raises(ValueError, match="look"):
            look_level(*wrong)
