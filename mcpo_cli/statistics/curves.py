"""Statistics of runs over time: score at a cost, survival, speed of learning, movement of cohorts.

A cohort is the prompts mastered at one global step, each resampled twice: under the same policy and under the next. Its
mean is noisier if its prompts are fewer or less stable. Noise lowers the lowest of several means and enlarges their
changes, without any difference in training; `swings` and `deepest` have the same expectation for any size of the
cohorts.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike, NDArray

from mcpo_cli.statistics.stats import Floats, t_interval

SHIFTS = np.arange(-70, 71) * (math.log(4) / 70)
"""Candidate values of log c: c runs from 1/4 to 4 and includes 1."""
DEGREE = 3
"""Degree of the polynomial that smooths a learning curve."""
FLAT = 1e-12
"""Mean squared differences below this are rounding errors."""
TIMES = np.linspace(0, 1, 100)
"""Points at which two curves are compared, as shares of the time for which both were observed."""
PARTS = 5
"""Number of parts of training, one of which has the deepest gap."""


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


@dataclass(frozen=True)
class Survival:
    """Share that survives beyond each time, and its interval (NaN if the share is 0 or 1)."""

    time_T: Floats
    share_T: Floats
    low_T: Floats
    high_T: Floats

    def restricted_mean(self, limit: float) -> float:
        """Mean duration, each counted as at most `limit`: the area below the curve up to there.

        Beyond the last time the curve is taken to be constant, as after a censored duration.
        """
        inside = self.time_T < limit
        edges = np.concatenate([[0.0], self.time_T[inside], [limit]])
        return float(np.sum(np.diff(edges) * np.concatenate([[1.0], self.share_T[inside]])))


def survival(duration_N: ArrayLike, observed_N: ArrayLike) -> Survival:
    """Kaplan-Meier estimate of the share that lasts longer than t (`scipy.stats.ecdf`), at every t that occurs.

    The interval is the 95 % exponential Greenwood interval, which stays within 0..1. It assumes independent durations
    and is too narrow if several belong to the same prompt.

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
    # Shares of 0 and 1 have no interval: scipy returns the documented NaN, but also warns.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        interval: Any = curve.confidence_interval(0.95, method="log-log")
    low, high = interval.low.probabilities, interval.high.probabilities
    return Survival(curve.quantiles, curve.probabilities, low, high)


@dataclass(frozen=True)
class TimeFactor:
    """Speed of learning relative to a baseline: geometric mean over seeds, its interval, and each seed's factor."""

    factor: float
    low: float
    high: float
    by_seed: tuple[float, ...]


def time_factor(baseline_ST: Floats, arm_ST: Floats, step_T: Sequence[float] | Floats) -> TimeFactor:
    """The c between 1/4 and 4 for which arm(t) is about baseline(c t); below 1 the arm learns more slowly.

    For each seed, c minimises the mean squared difference between arm(u / sqrt(c)) and baseline(u sqrt(c)) over the u
    at which both were observed. Each curve is a cubic fitted to its points, because arms that train on the same prompts
    share noise from step to step: matched point by point, that noise favours c = 1 whatever the curves do (coverage .13
    to .25 at c = .8 and 1.3 with 20 points); cubics keep little of it (.91 to .96). Stretching both curves equally
    makes c antisymmetric: exchanging them gives 1/c. The interval is a t-interval over seeds of log c.

    Args:
        baseline_ST, arm_ST: seeds x points of time, with the same seeds in the same order.
        step_T: time of each column, rising from 0, where both arms share one policy. The policy after s - 1 steps
            samples the rollouts of step s, so a metric of these rollouts belongs to time s - 1.

    Returns:
        Factors. A seed whose curves determine no factor within the bounds gets NaN, and so does the mean; with one
        seed the bounds are NaN.

    Raises:
        ValueError: there are fewer than 4 points, times do not rise from 0, shapes do not match, or values are NaN.
    """
    step = np.asarray(step_T, dtype=np.float64)
    if step.ndim != 1 or step.size < 4 or step[0] != 0 or not (np.diff(step) > 0).all():
        raise ValueError("a time factor needs at least 4 points of time, rising from 0")
    if baseline_ST.ndim != 2 or baseline_ST.shape != arm_ST.shape or baseline_ST.shape[1] != step.size:
        raise ValueError("curves must be matrices of seeds x points of time, of one shape")
    if not baseline_ST.size or np.isnan(baseline_ST).any() or np.isnan(arm_ST).any():
        raise ValueError("curves must have at least one seed and no NaN")
    log_S = np.array([_log_factor(*pair, step) for pair in zip(baseline_ST, arm_ST, strict=True)])
    interval = t_interval(log_S)
    factor, low, high = (math.exp(value) for value in (interval.mean, interval.low, interval.high))
    return TimeFactor(factor, low, high, tuple(np.exp(log_S).tolist()))


def _log_factor(baseline_T: Floats, arm_T: Floats, step_T: Floats) -> float:
    """log c of one seed: the best of SHIFTS, refined by a parabola; NaN if that is the first or the last."""
    up_H1, down_H1 = np.exp(SHIFTS / 2)[:, None], np.exp(-SHIFTS / 2)[:, None]
    time_HU = step_T[-1] * np.minimum(up_H1, down_H1) * TIMES
    baseline, arm = (Polynomial.fit(step_T, curve_T, DEGREE) for curve_T in (baseline_T, arm_T))
    error_H = ((arm(time_HU * down_H1) - baseline(time_HU * up_H1)) ** 2).mean(-1)
    best = int(error_H.argmin())
    # Two flat curves agree at every c up to rounding, so they determine no factor.
    if best in (0, SHIFTS.size - 1) or error_H.max() < FLAT:
        return math.nan
    before, here, after = error_H[best - 1 : best + 2]
    return float(SHIFTS[best] + (SHIFTS[1] - SHIFTS[0]) / 2 * (before - after) / (before - 2 * here + after))


def swings(value_TC: Sequence[Floats]) -> float:
    """Mean squared change of a cohort's true mean from one step to the next; negative by chance if it hardly moves.

    The squared difference of two sample means over-estimates that of the true means by their variances; the unbiased
    estimates s^2 / n of each cohort are subtracted.

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
