"""The p-values of a difference, adjusted over a family, and the word that they decide (`words.py` has all words)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mcpo_cli.statistics import stats
from mcpo_cli.statistics.power import ALPHA
from mcpo_cli.statistics.words import Word


@dataclass(frozen=True)
class PValues:
    """The p-values of one difference; NaN where there is no test."""

    p: float = math.nan
    """Two-sided, of no difference."""
    p_not_worse: float = math.nan
    """One-sided, of a difference of -margin or less; NaN without a margin."""
    p_equivalent: float = math.nan
    """The larger of the two one-sided p-values of |difference| of margin or more; NaN without a margin."""


class OneSided(Protocol):
    """The one-sided tests of a mean, such as Student's."""

    def p_above(self, bound: float = 0.0) -> float:
        """p of a mean of `bound` or less."""

    def p_below(self, bound: float = 0.0) -> float:
        """p of a mean of `bound` or more."""


def p_values(difference: OneSided, margin: float | None = None) -> PValues:
    """The tests of a difference. margin: the largest difference that does not matter, above 0."""
    # Unlike Python's min and max, numpy's are NaN if one of both values is.
    p = float(np.minimum(1.0, 2 * np.minimum(difference.p_above(), difference.p_below())))
    if margin is None:
        return PValues(p)
    not_worse = difference.p_above(-margin)
    return PValues(p, not_worse, float(np.maximum(not_worse, difference.p_below(margin))))


def adjusted(family: Sequence[PValues]) -> list[PValues]:
    """The p-values of one family, each kind adjusted over it by Holm's method; p-values that are NaN do not count."""
    kinds = [[getattr(p_value, kind) for p_value in family] for kind in ("p", "p_not_worse", "p_equivalent")]
    return [PValues(*map(float, row)) for row in np.array([stats.holm(kind) for kind in kinds]).T]


def word(difference: float, tests: PValues, level: float = ALPHA, *, identical: bool = False) -> Word:
    """The word for a difference.

    Args:
        tests: its adjusted p-values.
        level: the largest p-value that decides.
        identical: whether both sides have the same score in each seed, or on each problem.
    """
    if identical:
        return "identical"
    if math.isnan(tests.p):
        return "not testable"
    if tests.p_equivalent <= level:
        return "equivalent"
    if tests.p <= level:
        return "better" if difference > 0 else "worse"
    return "not worse" if tests.p_not_worse <= level else "undecided"
