"""The rows of a run by global step, and means over them with their intervals."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from mcpo_cli.probes.base import known
from mcpo_cli.statistics import curves

Row = TypeVar("Row", bound=Mapping[str, Any])


def by_step(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """The rows of each global step, in the order of the steps."""
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["step"]].append(row)
    return dict(sorted(found.items()))


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
