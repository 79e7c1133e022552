"""The metrics of one evaluation, tier by tier."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any


def evaluated(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The metrics of one evaluation, from its `EvalRow`s.

    `eval/<tier>/pass_at_1`: the mean of c / n over the tier's problems.
    `eval/<tier>/infra_errors`: the share of samples that could not be graded; absent if all were graded.
    """
    metrics = {}
    for tier, problems in by_tier(rows).items():
        metrics[f"eval/{tier}/pass_at_1"] = math.fsum(row["c"] / row["n"] for row in problems) / len(problems)
        if ungraded := sum(row.get("ungraded", 0) for row in problems):
            metrics[f"eval/{tier}/infra_errors"] = ungraded / (ungraded + sum(row["n"] for row in problems))
    return metrics


def by_tier(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Tier -> its rows."""
    tiers: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        tiers[row["tier"]].append(row)
    return tiers
