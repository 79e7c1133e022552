"""A run's score at a given cost, between two evaluations."""

import math
from collections.abc import Sequence

import numpy as np


def at_cost(cost_E: Sequence[float], score_E: Sequence[float], where: float) -> float:
    """The score at cost `where`, by linear interpolation between the two evaluations around it.

    NaN before the first evaluation and after the last one: nothing is extrapolated.

    Args:
        cost_E: what each of E evaluations had cost, any `cost/*` of a run, rising.
        score_E: the score of each evaluation.

    Raises:
        ValueError: there is no evaluation, the lists differ in length, or costs do not rise.
    """
    if not len(cost_E) or len(cost_E) != len(score_E) or (np.diff(cost_E) <= 0).any():
        raise ValueError(f"each evaluation needs a score, and costs must rise, not {list(cost_E)} and {list(score_E)}")
    if not cost_E[0] <= where <= cost_E[-1]:
        return math.nan
    return float(np.interp(where, cost_E, score_E))
