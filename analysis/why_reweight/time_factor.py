"""Speed of learning: the factor of time by which one curve follows another."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import Polynomial

from mcpo_cli.statistics.stats import Floats, t_interval

SHIFTS = np.arange(-70, 71) * (math.log(4) / 70)
"""Candidate values of log c: c runs from 1/4 to 4 and includes 1."""
DEGREE = 3
"""Degree of the polynomial that smooths a learning curve."""
FLAT = 1e-12
"""Mean squared differences below this are rounding errors."""
TIMES = np.linspace(0, 1, 100)
"""Points at which two curves are compared, as shares of the time for which both were observed."""


@dataclass(frozen=True)
class TimeFactor:
    """Speed of learning relative to a baseline: geometric mean over seeds, and its interval."""

    factor: float
    low: float
    high: float


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
        The factor; NaN if the curves of a seed determine none within the bounds. With one seed the bounds are NaN.

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
    return TimeFactor(math.exp(interval.mean), math.exp(interval.low), math.exp(interval.high))


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
