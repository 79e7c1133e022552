"""From rows of the journal to points of a curve."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from mcpo_cli.records import StepRow

Point = tuple[str, float, int, int]
"""Name, value, time in milliseconds since the epoch, global step."""


def step_points(row: StepRow) -> list[Point]:
    """The finite values of a step; how many were not is a point of its own."""
    finite = {key: value for key, value in row["metrics"].items() if math.isfinite(value)}
    if lost := len(row["metrics"]) - len(finite):
        finite["journal/nonfinite"] = float(lost)
    return [(key, value, milliseconds(row["time"]), row["step"]) for key, value in finite.items()]


def evaluated(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The metrics of one evaluation, from its `EvalRow`s.

    `eval/<tier>/pass_at_1`: the mean of c / n over the tier's problems. `eval/<tier>/infra_errors`: the share of
    samples that could not be graded; absent where all could.
    """
    tiers: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        tiers[row["tier"]].append(row)
    found = {}
    for tier, its in tiers.items():
        found[f"eval/{tier}/pass_at_1"] = math.fsum(row["c"] / row["n"] for row in its) / len(its)
        if ungraded := sum(row.get("ungraded", 0) for row in its):
            found[f"eval/{tier}/infra_errors"] = ungraded / (ungraded + sum(row["n"] for row in its))
    return found


def eval_points(step: int, seconds: float, rows: Iterable[Mapping[str, Any]]) -> list[Point]:
    """The points of one evaluation, from its `EvalRow`s."""
    return [(name, value, milliseconds(seconds), step) for name, value in evaluated(rows).items()]


def milliseconds(seconds: float) -> int:
    """MLflow's unit of time."""
    return round(seconds * 1000)


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested plain data as one level, its keys joined by dots."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
