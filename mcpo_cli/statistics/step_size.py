"""Arms against a curve of step sizes: an arm's effect beyond a step size, and the step size of equal effect."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import special

from mcpo_cli.statistics.stats import LEAST, Floats

FEWEST = 3
"""Fewest step sizes that make a curve: two cannot show that it bends."""


def difference_from_curve(x_S: Floats, y_S: Floats, x_SC: Floats, y_SC: Floats) -> Floats | None:
    """The arm's mean y minus that of the curve where its mean x is the arm's, as one pseudo-value per run.

    With x what an arm gains and y what it loses, this is the loss at equal gain; the other way round it is the gain at
    equal loss. The curve joins the origin (no step, no change) and the means of arms that differ in the step size
    alone, by straight lines. Its points and the arm's place on it have a joint uncertainty, so the values are those of
    a jackknife over runs (Efron and Tibshirani 1993, chapter 11): their mean estimates the difference, and a t-test of
    them is a test of it.

    Args:
        x_S, y_S: the arm's, per run.
        x_SC, y_SC: of the C arms of the curve, in the order of their step sizes.

    Returns:
        The values. None if the arm's mean x is outside the curve's or the curve's x do not increase, for all runs or
        without one of them: nothing is extrapolated.

    Raises:
        ValueError: there are fewer than two runs.
    """
    S = len(x_S)
    if S < 2:
        raise ValueError("the jackknife needs at least two runs")
    everyone = np.arange(S)
    values = [
        _difference(x_S[kept].mean(), y_S[kept].mean(), x_SC[kept].mean(0), y_SC[kept].mean(0))
        for kept in (everyone, *(np.delete(everyone, run) for run in range(S)))
    ]
    if np.isnan(values).any():
        return None
    whole, without_S = values[0], np.array(values[1:])
    return S * whole - (S - 1) * without_S


def _difference(x: float, y: float, x_C: Floats, y_C: Floats) -> float:
    curve_x, curve_y = np.concatenate([[0.0], x_C]), np.concatenate([[0.0], y_C])
    if (np.diff(curve_x) <= 0).any() or not curve_x[0] <= x <= curve_x[-1]:
        return float("nan")
    return float(y - np.interp(x, curve_x, curve_y))


@dataclass(frozen=True)
class StepSize:
    """The step size at which a curve reaches an arm's outcome, and its 95 % confidence set, as an interval."""

    size: float
    """NaN if the arm's mean is outside of the curve's means, because it is not extrapolated."""
    low: float
    """0 if the set reaches the smallest step size of the curve; NaN if no step size of the curve is in it."""
    high: float
    """Infinite if the set reaches the largest; NaN if no step size of the curve is in it."""


def equal_step(size_C: Floats, y_SC: Floats, y_S: Floats) -> StepSize | None:
    """The step size at which the curve's outcome is the arm's.

    The curve joins the outcomes at C step sizes by straight lines over the logarithm of the step size. The confidence
    set has every step size at which the paired t-test of the arm's outcomes against the curve's keeps the equality: on
    a line between two sizes that is the solution of a quadratic inequality (Fieller 1954, J. R. Stat. Soc. B 16,
    175-185). So it is exact if runs are normal and the true curve is straight between the sizes; it allows for the
    error of the curve as well as the arm's. If the set has gaps, the interval covers them. Simulated: 94.8 to 95.3 %
    with 3, 6 and 12 runs.

    Args:
        size_C: step sizes, rising.
        y_SC: the outcome of each run of the curve; row s shares seed and base policy with
        y_S: the outcome of the arm's run s.

    Returns:
        None unless the curve's means rise, or fall, from each size to the next: else an outcome has no single size.

    Raises:
        ValueError: fewer than FEWEST sizes or LEAST runs, or sizes do not rise.
    """
    S, C = y_SC.shape
    if FEWEST > C or LEAST > S or (np.diff(size_C) <= 0).any():
        raise ValueError(f"a curve needs {FEWEST} rising step sizes and {LEAST} runs of each")
    rises_C = np.diff(y_SC.mean(0))
    if not ((rises_C > 0).all() or (rises_C < 0).all()):
        return None
    at_C, mean = np.log(size_C), float(y_S.mean())
    means, places = (y_SC.mean(0), at_C) if rises_C[0] > 0 else (y_SC.mean(0)[::-1], at_C[::-1])
    size = float(np.exp(np.interp(mean, means, places))) if means[0] <= mean <= means[-1] else math.nan
    kept = [
        (at_C[c] + w * (at_C[c + 1] - at_C[c]), (c, w))
        for c in range(C - 1)
        for piece in _not_rejected(y_S - y_SC[:, c], y_SC[:, c] - y_SC[:, c + 1])
        for w in piece
    ]
    if not kept:
        return StepSize(size, math.nan, math.nan)
    (low, first), (high, last) = min(kept), max(kept)
    return StepSize(
        size, 0.0 if first == (0, 0.0) else math.exp(low), math.inf if last == (C - 2, 1.0) else math.exp(high)
    )


def _not_rejected(u_S: Floats, v_S: Floats) -> Iterator[tuple[float, float]]:
    """The parts of 0 <= w <= 1 for which a t-test of u + w v at level .05 keeps a mean of 0."""
    S = len(u_S)
    t2 = float(special.stdtrit(S - 1, 0.975)) ** 2 / S
    (uu, uv), (_, vv) = np.cov(u_S, v_S)
    u, v = float(u_S.mean()), float(v_S.mean())
    quadratic = np.array([v * v - t2 * vv, 2 * (u * v - t2 * uv), u * u - t2 * uu])
    roots = np.roots(quadratic) if quadratic[:2].any() else np.empty(0)
    inside = sorted({0.0, 1.0, *(float(root.real) for root in roots if np.isreal(root) and 0 < root.real < 1)})
    for start, end in itertools.pairwise(inside):
        if np.polyval(quadratic, (start + end) / 2) <= 0:
            yield start, end
