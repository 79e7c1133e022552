"""Statistics of runs over time: means over dependent steps, survival curves, and the speed of learning."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike
from scipy import special

from mcpo_cli.statistics.stats import LEAST, Floats, Interval, t_interval

SHIFTS = np.arange(-70, 71) * (math.log(4) / 70)
"""Candidate values of log c: c runs from 1/4 to 4 and includes 1."""
DEGREE = 3
"""Degree of the polynomial that smooths a learning curve."""
FLAT = 1e-12
"""Mean squared differences below this are rounding errors."""
TIMES = np.linspace(0, 1, 100)
"""Points at which two curves are compared, as shares of the time for which both were observed."""


def cluster_mean(value_N: ArrayLike, weight_N: ArrayLike, cluster_N: ArrayLike, level: float = 0.95) -> Interval:
    """Weighted mean of values that depend on each other within a cluster, such as the prompts of a global step.

    The estimate is sum w v / sum w. Its variance is sum_c e_c^2 / (1 - h_c) / (sum w)^2, where e_c is the sum of
    w (v - mean) in cluster c and h_c the cluster's share of the weight: the cluster-robust variance CR2 (Bell and
    McCaffrey 2002, Survey Methodology 28, 169-181) of a weighted regression on a constant. The interval uses Student's
    t with K - 1 degrees of freedom, where K = 1 / sum_c h_c^2 is the effective number of clusters. Clusters of equal
    weight give the t-interval over their means. Clusters are assumed independent; values of weight 0, and clusters that
    hold only such values, do not count. Coverage, 95 % nominal, with 10, 20 and 40 clusters of uniform or geometric
    sizes: 94 to 95 % (90 to 95 % with C / (C - 1) in place of 1 / (1 - h_c) and C - 1 degrees of freedom).

    Clusters that depend on each other, as steps after one another do, are not what it is made for: where all variance
    is between steps whose values have an autocorrelation of .3, it covers 84 to 87 %, and 67 to 69 % at .6.

    Returns:
        `Interval` with n = number of clusters; fewer than LEAST clusters give no interval (NaN half-width).

    Raises:
        ValueError: lengths differ, a value or weight is NaN, a weight is below 0, or no weight is above 0.
    """
    value, weight, cluster = np.asarray(value_N, np.float64), np.asarray(weight_N, np.float64), np.asarray(cluster_N)
    if value.ndim != 1 or not value.shape == weight.shape == cluster.shape:
        raise ValueError("values, weights and clusters must be lists of one length")
    if np.isnan(weight).any() or (weight < 0).any() or not weight.any():
        raise ValueError("weights must be at least 0, and at least one above 0")
    counts = weight > 0
    value, weight = value[counts], weight[counts]
    if np.isnan(value).any():
        raise ValueError("values must not be NaN where they have a weight")
    total, mean = weight.sum(), float(np.average(value, weights=weight))
    place = np.unique(cluster[counts], return_inverse=True)[1]
    residual_C = np.bincount(place, weights=weight * (value - mean))
    share_C = np.bincount(place, weights=weight / total)
    if share_C.size < LEAST:
        return Interval(mean, math.nan, share_C.size)
    error = math.sqrt((residual_C**2 / (1 - share_C)).sum()) / total
    quantile = special.stdtrit(1 / (share_C**2).sum() - 1, 0.5 + level / 2)
    return Interval(mean, float(quantile * error), share_C.size)


@dataclass(frozen=True)
class Survival:
    """Share that survives beyond each time, and its interval (NaN where the share is 0 or 1)."""

    time_T: Floats
    share_T: Floats
    low_T: Floats
    high_T: Floats


def survival(duration_N: ArrayLike, observed_N: ArrayLike, level: float = 0.95) -> Survival:
    """Kaplan-Meier estimate of the share that lasts longer than t (`scipy.stats.ecdf`), at every t that occurs.

    The interval is the exponential Greenwood interval, which stays within 0..1. It assumes independent durations and is
    too narrow if several belong to the same prompt.

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
        interval: Any = curve.confidence_interval(level, method="log-log")
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
