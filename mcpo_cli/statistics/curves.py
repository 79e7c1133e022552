"""Statistics of runs over time: score at a cost, survival, movement of cohorts.

A cohort is the prompts mastered at one global step, each resampled twice: under the same policy and under the next. Its
mean is noisier if its prompts are fewer or less stable. Noise lowers the lowest of several means and enlarges their
changes, without any difference in training; `swings` and `deepest` have the same expectation for any size of the
cohorts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcpo_cli.statistics.stats import Floats

PARTS = 5
"""Number of parts of training, one of which has the deepest gap."""


def at_cost(cost_E: Sequence[float], score_E: Sequence[float], cost: float) -> float:
    """The score at `cost`, by linear interpolation between the two evaluations around it.

    NaN before the first evaluation and after the last one: nothing is extrapolated.

    Args:
        cost_E: what each of E evaluations had cost, any `cost/*` of a run, rising.
        score_E: the score of each evaluation.

    Raises:
        ValueError: there is no evaluation, the lists differ in length, or costs do not rise.
    """
    if not len(cost_E) or len(cost_E) != len(score_E) or (np.diff(cost_E) <= 0).any():
        raise ValueError(f"each evaluation needs a score, and costs must rise, not {list(cost_E)} and {list(score_E)}")
    if not cost_E[0] <= cost <= cost_E[-1]:
        return math.nan
    return float(np.interp(cost, cost_E, score_E))


@dataclass(frozen=True)
class Survival:
    """Share that survives beyond each time."""

    time_T: Floats
    share_T: Floats

    def restricted_mean(self, limit: float) -> float:
        """Mean duration, each counted as at most `limit`: the area below the curve up to there.

        Beyond the last time the curve is taken to be constant, as after a censored duration.
        """
        mask = self.time_T < limit
        edges = np.concatenate([[0.0], self.time_T[mask], [limit]])
        return float(np.sum(np.diff(edges) * np.concatenate([[1.0], self.share_T[mask]])))


def survival(duration_N: ArrayLike, observed_N: ArrayLike) -> Survival:
    """Kaplan-Meier estimate of the share that lasts longer than t (`scipy.stats.ecdf`), at every t that occurs.

    Args:
        duration_N: observed durations, for example in global steps.
        observed_N: whether the end was observed; False if observation stopped first.

    Raises:
        ValueError: there are no durations, lengths differ, or a duration is not finite.
    """
    from scipy import stats

    duration, observed = np.asarray(duration_N, np.float64), np.asarray(observed_N, bool)
    if duration.ndim != 1 or duration.shape != observed.shape or not duration.size:
        raise ValueError("durations must be a non-empty list, with one value of observed_N each")
    if not np.isfinite(duration).all():
        raise ValueError("durations must be finite")
    curve = stats.ecdf(stats.CensoredData.right_censored(duration, ~observed)).sf
    return Survival(curve.quantiles, curve.probabilities)


def swings(value_TC: Sequence[Floats]) -> float:
    """Mean squared change of a cohort's true mean from one step to the next; negative by chance if it hardly moves.

    The squared difference of two sample means over-estimates the squared difference of the true means by the sample
    means' variances; the unbiased estimates s^2 / n of each cohort are subtracted.

    Args:
        value_TC: per step, one value per prompt of its cohort. Steps with fewer than two prompts have no variance and
            are left out.

    Returns:
        In squared units of the values; NaN with fewer than two steps.
    """
    moments = [
        (float(value_C.mean()), float(value_C.var(ddof=1)) / value_C.size) for value_C in value_TC if len(value_C) > 1
    ]
    changes = [(after - before) ** 2 - noise - more for (before, noise), (after, more) in pairwise(moments)]
    return float(np.mean(changes)) if changes else math.nan


def deepest(value_TC: Sequence[Floats], parts: int = PARTS) -> float:
    """The mean of the part of training in which it is largest, cross-fitted.

    One half of every cohort's prompts picks the part and the other half measures it, and vice versa, so that noise
    does not raise the maximum. If the true means are equal, its expectation is that mean, for any cohorts.

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
