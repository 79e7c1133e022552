"""Converts journal rows to metric points."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from mcpo_cli.records import StepRow

Point = tuple[str, float, int, int]
"""Name, value, time in milliseconds since the epoch, global step."""


def step_points(row: StepRow) -> list[Point]:
    """The finite values of a step; `journal/nonfinite` counts the others."""
    finite = {key: value for key, value in row["metrics"].items() if math.isfinite(value)}
    if lost := len(row["metrics"]) - len(finite):
        finite["journal/nonfinite"] = float(lost)
    return [(key, value, milliseconds(row["time"]), row["step"]) for key, value in finite.items()]


def evaluated(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The metrics of one evaluation, from its `EvalRow`s.

    `eval/<tier>/pass_at_1`: the mean of c / n over the tier's problems.
    `eval/<tier>/infra_errors`: the share of samples that could not be graded; absent if all were graded.
    """
    tiers: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        tiers[row["tier"]].append(row)
    metrics = {}
    for tier, problems in tiers.items():
        metrics[f"eval/{tier}/pass_at_1"] = math.fsum(row["c"] / row["n"] for row in problems) / len(problems)
        if ungraded := sum(row.get("ungraded", 0) for row in problems):
            metrics[f"eval/{tier}/infra_errors"] = ungraded / (ungraded + sum(row["n"] for row in problems))
    return metrics


def eval_points(step: int, seconds: float, rows: Iterable[Mapping[str, Any]]) -> list[Point]:
    """The points of one evaluation, from its `EvalRow`s."""
    return [(name, value, milliseconds(seconds), step) for name, value in evaluated(rows).items()]


def milliseconds(seconds: float) -> int:
    """Seconds in MLflow's unit of time."""
    return round(seconds * 1000)
