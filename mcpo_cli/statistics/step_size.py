"""An arm against a curve of step sizes: its effect beyond what a step size does."""

import numpy as np

from mcpo_cli.statistics.stats import Floats


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
