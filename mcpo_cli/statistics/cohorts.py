"""How the accuracy of cohorts moves from step to step, without what the size of a cohort adds to it.

A cohort is the prompts mastered at one global step, each rolled twice: under the same policy and under the next. Its
mean is noisy, the more so the fewer its prompts and the less stable they are. The lowest of noisy means is lower, and
their changes are larger, without any difference in training; what is here has the same expectation for any size.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mcpo_cli.statistics.stats import Floats

PARTS = 5
"""Parts of training among which the deepest gap is looked for."""


def swings(value_TC: Sequence[Floats]) -> float:
    """Mean squared change of a cohort's true mean from one step to the next; negative by chance if it hardly moves.

    The squared difference of two sample means over-estimates that of the true means by their variances, which are
    estimated without bias by s^2 / n of each cohort and taken off.

    Args:
        value_TC: per step, one value per prompt of its cohort. Steps with fewer than two prompts have no variance and
            are left out.

    Returns:
        In squared units of the values; NaN with fewer than two steps.
    """
    known = [
        (float(value_C.mean()), float(value_C.var(ddof=1)) / value_C.size) for value_C in value_TC if len(value_C) > 1
    ]
    changes = [(after - before) ** 2 - noise - more for (before, noise), (after, more) in pairwise(known)]
    return float(np.mean(changes)) if changes else math.nan


def deepest(value_TC: Sequence[Floats], parts: int = PARTS) -> float:
    """The mean of the part of training in which it is largest, cross-fitted.

    One half of every cohort's prompts picks the part and the other half measures it, and the other way round: so the
    maximum is not one of noise. Where the true means are equal its expectation is that mean, whatever the cohorts.

    Args:
        value_TC: per step, in order, one value per prompt of its cohort, such as its loss of accuracy. Steps with fewer
            than two prompts are left out.
        parts: number of consecutive parts of equal length.

    Returns:
        The mean of both halves; NaN with fewer steps than parts.
    """
    halves_T2 = np.array([(value_C[::2].mean(), value_C[1::2].mean()) for value_C in value_TC if len(value_C) > 1])
    if len(halves_T2) < parts:
        return math.nan
    mean_P2 = np.array([part_T2.mean(axis=0) for part_T2 in np.array_split(halves_T2, parts)])
    picked_2: NDArray[np.int64] = mean_P2.argmax(axis=0)
    return float((mean_P2[picked_2[0], 1] + mean_P2[picked_2[1], 0]) / 2)
