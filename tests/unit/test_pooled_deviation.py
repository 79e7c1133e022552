"""Reasons to test a difference with its own standard deviation: power and errors of one pooled over arms.

Pooled: the residual of the analysis of variance of arm x pair, with (arms - 1)(pairs - 1) degrees of freedom.
"""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from mcpo_cli.statistics import stats

TRIALS = 20_000
Floats = NDArray[np.float64]


def scores(pairs: int, spreads: Sequence[float], gap: float = 0.0, seed: int = 0) -> Floats:
    """Trials x arms x pairs. Arm i varies by spreads[i] around a pair's common value; arm 1 is `gap` higher."""
    rng = np.random.default_rng(seed)
    score_RAS = rng.normal(size=(TRIALS, len(spreads), pairs)) * np.array(spreads)[:, None]
    score_RAS += rng.normal(size=(TRIALS, 1, pairs))
    score_RAS[:, 1] += gap
    return score_RAS


def p_values(score_RAS: Floats) -> tuple[Floats, Floats]:
    """p of arm 1 against arm 0: by the difference's own deviation, and by the pooled one."""
    _, arms, pairs = score_RAS.shape
    diff_RS = score_RAS[:, 1] - score_RAS[:, 0]
    of_arm, of_pair = score_RAS.mean(axis=2, keepdims=True), score_RAS.mean(axis=1, keepdims=True)
    residual_RAS = score_RAS - of_arm - of_pair + score_RAS.mean(axis=(1, 2), keepdims=True)
    freedom = (arms - 1) * (pairs - 1)
    pooled_R = 2 * (residual_RAS**2).sum(axis=(1, 2)) / freedom
    return tuple(
        2 * special.stdtr(df, -np.abs(diff_RS.mean(axis=1)) / np.sqrt(variance / pairs))
        for df, variance in ((pairs - 1, diff_RS.var(axis=1, ddof=1)), (freedom, pooled_R))
    )


def found(p: Floats) -> float:
    return float((p <= 0.05).mean())


def test_with_two_arms_the_pooled_deviation_is_the_paired_t_test() -> None:
    score_RAS = scores(4, (1, 2))[:50]
    own, pooled = p_values(score_RAS)
    assert pooled == pytest.approx(own)
    assert own == pytest.approx([stats.paired_t(one[1] - one[0]).p for one in score_RAS])


@pytest.mark.slow
def test_numbers_that_the_docstring_of_differences_quotes() -> None:
    for pairs, arms, gap, own_power, pooled_power in (
        (3, 3, 2.0, 0.46, 0.73),
        (3, 6, 2.0, 0.46, 0.87),
        (8, 6, 1.0, 0.68, 0.79),
    ):
        both = [found(p) for p in p_values(scores(pairs, [1] * arms, gap * np.sqrt(2)))]
        assert both == pytest.approx([own_power, pooled_power], abs=0.01)
        for ratio, false in ((2, {3: 0.08, 6: 0.12}), (3, {3: 0.10, 6: 0.19})):
            own, pooled = (found(p) for p in p_values(scores(pairs, [1, ratio, *[1] * (arms - 2)])))
            assert own == pytest.approx(0.05, abs=0.007)
            assert pooled == pytest.approx(false[arms], abs=0.01)
