"""What the inner products of single prompts' gradients say of the update: pure functions of `GradientRow`s of one step.

With n prompts v_i of mean U, and the mastered ones of mean M, the rows hold |v_i|, v_i . U and v_i . M. So U . U, U . M
and M . M are means of rows, and so is every such product after one prompt was left out.
"""

import math
from collections.abc import Sequence

from mcpo_cli.records import GradientRow

Products = tuple[float, float, float]
"""U . U, U . M and M . M."""


def mixed(rows: Sequence[GradientRow]) -> list[GradientRow]:
    """The prompts with right and wrong rollouts: those that the update comes from."""
    return [row for row in rows if row["p"] < 1]


def mastered(rows: Sequence[GradientRow]) -> list[GradientRow]:
    """The prompts all of whose rollouts were right."""
    return [row for row in rows if row["p"] == 1]


def cosine(rows: Sequence[GradientRow]) -> float:
    """cos(U, M): below 0 the update lowers, to first order, the likelihood of the mastered prompts' answers.

    The noise of n prompts makes both means longer and the cosine smaller in size; its sign stays unbiased, as U . M is
    a product of independent means. NaN without prompts of both kinds, or without a gradient.
    """
    update, kept = mixed(rows), mastered(rows)
    return _cosine(_products(update, kept)) if update and kept else math.nan


def cosine_error(rows: Sequence[GradientRow]) -> float:
    """Standard error of `cosine` over the choice of prompts: the jackknife of two samples, a prompt left out at a time.

    NaN with fewer than two prompts of either kind, or where leaving one out leaves no gradient.
    """
    update, kept = mixed(rows), mastered(rows)
    if min(len(update), len(kept)) < 2:
        return math.nan
    UU, UM, MM = _products(update, kept)
    n, m = len(update), len(kept)
    without_update, without_kept = [], []
    for row in update:
        uu, um = _leave_out(n, UU, UM, row["norm"], row["with_update"], row["with_mastered"])
        without_update.append(_cosine((uu, um, MM)))
    for row in kept:
        mm, um = _leave_out(m, MM, UM, row["norm"], row["with_mastered"], row["with_update"])
        without_kept.append(_cosine((UU, um, mm)))
    return math.sqrt(_jackknife_variance(without_update) + _jackknife_variance(without_kept))


def signal_to_noise(rows: Sequence[GradientRow], prompts: float) -> float:
    """|E v|^2 over the variance of a mean of `prompts` gradients: what a mini-batch's gradient is worth.

    With T = (sum |v_i|^2 - n U . U) / (n - 1), the trace of the gradients' covariance, that is
    prompts (U . U - T / n) / T. The numerator is unbiased, so it can fall below 0 where there is little signal.
    NaN with fewer than two prompts or without a spread.
    """
    update = mixed(rows)
    n = len(update)
    if n < 2:
        return math.nan
    UU = _mean([row["with_update"] for row in update])
    trace = (sum(row["norm"] ** 2 for row in update) - n * UU) / (n - 1)
    return prompts * (UU - trace / n) / trace if trace > 0 else math.nan


def _products(update: Sequence[GradientRow], kept: Sequence[GradientRow]) -> Products:
    return (
        _mean([row["with_update"] for row in update]),
        _mean([row["with_mastered"] for row in update]),
        _mean([row["with_mastered"] for row in kept]),
    )


def _leave_out(
    n: int, own: float, other: float, norm: float, along_own: float, along_other: float
) -> tuple[float, float]:
    """X . X and X . Y for X without one vector v: `own` = X . X, `other` = X . Y, `along_own` = v . X and so on."""
    without = (n * n * own - 2 * n * along_own + norm**2) / (n - 1) ** 2
    return without, (n * other - along_other) / (n - 1)


def _cosine(products: Products) -> float:
    UU, UM, MM = products
    return UM / math.sqrt(UU * MM) if UU > 0 and MM > 0 else math.nan


def _jackknife_variance(values: Sequence[float]) -> float:
    n, mean = len(values), _mean(values)
    return (n - 1) / n * sum((value - mean) ** 2 for value in values)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
