"""Converts journal rows to metric points."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from mcpo_cli.records import StepRow
from mcpo_cli.runs.sanity import by_tier, evaluated

Point = tuple[str, float, int, int]
"""Name, value, time in milliseconds since the epoch, global step."""
AVERAGE = "eval/average"
"""In the place of `eval/<tier>`: means over the tiers."""
MOST = 8
"""The k of pass@k and best@k, as in the paper, where problems have as many samples."""


def step_points(row: StepRow) -> list[Point]:
    """The finite values of a step; `journal/nonfinite` counts the others."""
    finite = {key: value for key, value in row["metrics"].items() if math.isfinite(value)}
    if lost := len(row["metrics"]) - len(finite):
        finite["journal/nonfinite"] = float(lost)
    return [(key, value, milliseconds(row["time"]), row["step"]) for key, value in finite.items()]


def averages(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means over the tiers of one evaluation: `eval/average/pass_at_1`, `.../pass_at_<k>` and `.../best_at_<k>`.

    k is the number of graded samples of the problem with the fewest, at most MOST.
    """
    # Imported here because `progress.py`, which starts with every command that trains, needs nothing of it.
    from mcpo_cli.statistics import stats

    k = min(MOST, *(row["n"] for row in rows))
    tiers = list(by_tier(rows).values())
    n, c = ([row[name] for problems in tiers for row in problems] for name in ("n", "c"))
    # All problems in one call, as a call takes longer than what it computes.
    values: dict[str, Any] = {
        "pass_at_1": stats.pass_at_k(n, c, 1),
        f"pass_at_{k}": stats.pass_at_k(n, c, k),
        f"best_at_{k}": stats.best_at_k(n, c, k),
    }
    ends = list(accumulate(map(len, tiers)))
    places = [slice(end - len(problems), end) for problems, end in zip(tiers, ends, strict=True)]
    means = {name: [of_all[place].mean() for place in places] for name, of_all in values.items()}
    return {f"{AVERAGE}/{name}": float(math.fsum(of_tiers)) / len(tiers) for name, of_tiers in means.items()}


def eval_points(step: int, seconds: float, rows: Sequence[Mapping[str, Any]]) -> list[Point]:
    """The points of one evaluation, from its `EvalRow`s."""
    values = evaluated(rows) | averages(rows)
    return [(name, value, milliseconds(seconds), step) for name, value in values.items()]


def milliseconds(seconds: float) -> int:
    """Seconds in MLflow's unit of time."""
    return round(seconds * 1000)
