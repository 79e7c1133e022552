"""Direction and noise of the update from inner products of single prompts' gradients: the `GradientRow`s of one step.

The rows hold |v|, v . U and v . M for the gradient v of each prompt, where U is the mean gradient of the prompts that
the update comes from and M the mean gradient of the mastered prompts. U . U, U . M and M . M are therefore means over
rows.
"""

import math
from collections.abc import Sequence

from mcpo_cli.records import GradientRow


def mixed(rows: Sequence[GradientRow]) -> list[GradientRow]:
    """The prompts with correct and incorrect rollouts, which the update comes from."""
    return [row for row in rows if row["p"] < 1]


def mastered(rows: Sequence[GradientRow]) -> list[GradientRow]:
    """The prompts whose rollouts were all correct."""
    return [row for row in rows if row["p"] == 1]


def cosine(rows: Sequence[GradientRow]) -> float:
    """cos(U, M); if it is below 0, the update lowers the likelihood of mastered prompts' answers to first order.

    Noise lengthens both means and so shrinks the cosine towards 0, but U . M stays unbiased because the two means are
    independent. NaN without prompts of both kinds, or without a gradient.
    """
    update, mastered_rows = mixed(rows), mastered(rows)
    if not update or not mastered_rows:
        return math.nan
    UU, UM = (_mean([row[name] for row in update]) for name in ("with_update", "with_mastered"))
    MM = _mean([row["with_mastered"] for row in mastered_rows])
    return UM / math.sqrt(UU * MM) if UU > 0 and MM > 0 else math.nan


def signal_to_noise(rows: Sequence[GradientRow], prompts: float) -> float:
    """Signal-to-noise ratio of a mini-batch's gradient: |E v|^2 over the variance of a mean of `prompts` gradients.

    It equals prompts (U . U - T / n) / T, where T = (sum |v_i|^2 - n U . U) / (n - 1) is the trace of the gradients'
    covariance. The numerator is unbiased, so it can fall below 0 if there is little signal. NaN with fewer than two
    prompts or without variance.
    """
    update = mixed(rows)
    n = len(update)
    if n < 2:
        return math.nan
    UU = _mean([row["with_update"] for row in update])
    trace = (sum(row["norm"] ** 2 for row in update) - n * UU) / (n - 1)
    return prompts * (UU - trace / n) / trace if trace > 0 else math.nan


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
