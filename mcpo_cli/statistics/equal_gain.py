"""Loss of an arm relative to a change of the step size that gains as much."""

import numpy as np

from mcpo_cli.statistics.stats import Effect, Floats, paired_t


def cost_at_equal_gain(gain_S: Floats, cost_S: Floats, gain_SC: Floats, cost_SC: Floats) -> Effect | None:
    """The arm's mean cost minus that of the curve where its mean gain is the arm's.

    The curve joins the origin (no step: no gain, no cost) and the means of arms that differ in the step size alone, by
    straight lines. Its ends and the arm's place on it are uncertain together, so the error comes from a jackknife over
    runs (Efron and Tibshirani 1993, chapter 11): a t-interval of the pseudo-values.

    Args:
        gain_S, cost_S: the arm's, per run.
        gain_SC, cost_SC: of the C arms of the curve, in the order of their step sizes.

    Returns:
        The difference. None if the arm's mean gain is outside the curve's or the curve's gains do not increase, for all
        runs or without one of them: nothing is extrapolated.

    Raises:
        ValueError: there are fewer than two runs.
    """
    S = len(gain_S)
    if S < 2:
        raise ValueError("the jackknife needs at least two runs")
    everyone = np.arange(S)
    values = [
        _difference(gain_S[kept].mean(), cost_S[kept].mean(), gain_SC[kept].mean(0), cost_SC[kept].mean(0))
        for kept in (everyone, *(np.delete(everyone, run) for run in range(S)))
    ]
    if np.isnan(values).any():
        return None
    whole, without_S = values[0], np.array(values[1:])
    return paired_t(S * whole - (S - 1) * without_S)


def _difference(gain: float, cost: float, gain_C: Floats, cost_C: Floats) -> float:
    x, y = np.concatenate([[0.0], gain_C]), np.concatenate([[0.0], cost_C])
    if (np.diff(x) <= 0).any() or not x[0] <= gain <= x[-1]:
        return float("nan")
    return float(cost - np.interp(gain, x, y))
