"""Groups the rows of a run by global step, and computes means with intervals over steps."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from mcpo_cli.probes.base import known
from mcpo_cli.statistics import clusters

Row = TypeVar("Row", bound=Mapping[str, Any])


def by_step(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """The rows of each global step, in the order of the steps."""
    grouped: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row["step"]].append(row)
    return dict(sorted(grouped.items()))


def mean_over_steps(
    name: str, values: Sequence[float], steps: Sequence[int], weights: Sequence[float] | None = None
) -> dict[str, float]:
    """The mean of `values` as `name`, with its interval `name_low` and `name_high`; empty without values.

    steps: the global step of each value. weights: 1 each by default. The interval treats values of one step as
    correlated and steps as independent.
    """
    if not values:
        return {}
    mean = clusters.mean(values, weights or [1] * len(values), steps).interval()
    return known({name: mean.mean, f"{name}_low": mean.low, f"{name}_high": mean.high})
