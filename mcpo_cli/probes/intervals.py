"""Means over the rows of a run, with their intervals."""

from collections.abc import Sequence

from mcpo_cli.analysis import curves
from mcpo_cli.probes.base import known


def mean_over_steps(
    name: str, values: Sequence[float], steps: Sequence[int], weights: Sequence[float] | None = None
) -> dict[str, float]:
    """The mean of `values` as `name`, `name_low` and `name_high`; `steps`: the global step of each.

    weights: of the values, 1 each if left out. The interval is robust to what values of one step share, and takes
    steps as independent. Empty without values.
    """
    if not values:
        return {}
    found = curves.cluster_mean(values, weights or [1] * len(values), steps)
    return known({name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high})
