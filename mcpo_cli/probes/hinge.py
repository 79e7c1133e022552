"""The hinge, mini-batch by mini-batch: what it feels, how often it switches, the variance it adds to the loss."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.methods.mcpo import drift_bins, drift_names
from mcpo_cli.probes.base import Finding, Probe
from mcpo_cli.probes.intervals import by_step, mean_over_steps
from mcpo_cli.records import MiniBatchRow
from mcpo_cli.runs.journal import Journal

FELT, ACTIVE = "hinge/prompts_felt", "hinge/tokens_active"
"""Metrics that MCPO reports of each mini-batch."""


def measure(spec: RunSpec, journal: Journal) -> Finding:
    """What the hinge feels; nothing where the method has none. The hinge is on in a mini-batch with a penalty above 0.

    Values: `prompts_felt` and `tokens_active`, the shares of mastered prompts and of their tokens that are outside the
    drift budget; means over gradient steps `penalty` (beta included) and `on`. Over pairs of consecutive mini-batches
    of a step: `switched_on`, `switched_off`. Over global steps: `variance_policy` and `variance_added`, the variance
    over the mini-batches of a step of the loss without the hinge, and what the hinge adds to it.
    Table `mini_batches`: the same by place in the step, the variances over the steps; with anchor=rollout the first
    one feels nothing. Table `drift`: tokens by d = log pi - log pi_old in units of delta; the outer bins are open.
    """
    rows = [row for row in journal.mini_batches() if FELT in row["sums"]]
    if not rows:
        return Finding({})
    steps, by_place = by_step(rows), defaultdict(list)
    for row in rows:
        by_place[row["mini_batch"]].append(row)
    places = [_place(number, found) for number, found in sorted(by_place.items())]
    return Finding(
        {**_felt(rows), **_switches(steps), **_variances(steps)}, {"mini_batches": places, "drift": _drift(rows)}
    )


def _felt(rows: Sequence[MiniBatchRow]) -> dict[str, float]:
    steps = [row["step"] for row in rows]
    return {
        **_share("prompts_felt", rows, FELT),
        **_share("tokens_active", rows, ACTIVE),
        **mean_over_steps("penalty", [_loss(row, "hinge") for row in rows], steps),
        **mean_over_steps("on", [float(_on(row)) for row in rows], steps),
    }


def _share(name: str, rows: Sequence[MiniBatchRow], metric: str) -> dict[str, float]:
    """The share over the mini-batches in which it is defined, each weighted by its denominator."""
    some = [row for row in rows if row["sums"][metric][1]]
    shares = [row["sums"][metric][0] / row["sums"][metric][1] for row in some]
    counts = [int(row["sums"][metric][1]) for row in some]
    return mean_over_steps(name, shares, [row["step"] for row in some], counts)


def _loss(row: MiniBatchRow, term: str) -> float:
    """The value of a term of the loss; 0 where no sequence bore a gradient."""
    return row["sums"].get(f"train/{term}_loss", [0.0])[0]


def _switches(steps: Mapping[int, Sequence[MiniBatchRow]]) -> dict[str, float]:
    pairs = [pair for rows in steps.values() for pair in pairwise(rows)]
    place = [after["step"] for _, after in pairs]
    return {
        **mean_over_steps("switched_on", [float(_on(after) and not _on(before)) for before, after in pairs], place),
        **mean_over_steps("switched_off", [float(_on(before) and not _on(after)) for before, after in pairs], place),
    }


def _variances(steps: Mapping[int, Sequence[MiniBatchRow]]) -> dict[str, float]:
    found = {step: _variance(rows) for step, rows in steps.items() if len(rows) > 1}
    names = ("variance_policy", "variance_added")
    columns = ((name, [variance[name] for variance in found.values()]) for name in names)
    return {key: value for name, column in columns for key, value in mean_over_steps(name, column, [*found]).items()}


def _variance(rows: Sequence[MiniBatchRow]) -> dict[str, float]:
    """Of the loss without the hinge over at least two `rows`, and what the hinge adds to it."""
    policy = statistics.variance(_loss(row, "policy") for row in rows)
    whole = statistics.variance(_loss(row, "policy") + _loss(row, "hinge") for row in rows)
    return {"variance_policy": policy, "variance_added": whole - policy}


def _place(number: int, rows: Sequence[MiniBatchRow]) -> dict[str, Any]:
    return {"mini_batch": number, **_felt(rows), **(_variance(rows) if len(rows) > 1 else {})}


def _drift(rows: Sequence[MiniBatchRow]) -> list[dict[str, Any]]:
    counts = [int(sum(row["sums"][name][0] for row in rows)) for name in drift_names()]
    tokens = sum(counts)
    return [
        {"low": low, "high": high, "tokens": count, "share": count / tokens if tokens else 0.0}
        for (low, high), count in zip(drift_bins(), counts, strict=True)
    ]


def _on(row: MiniBatchRow) -> bool:
    return _loss(row, "hinge") > 0


PROBE = Probe(
    name="hinge",
    question="How much of the mastered prompts does the hinge feel, and what does its switching do to the loss?",
    needs=("mini_batches",),
    shows=("prompts_felt", "tokens_active", "penalty", "switched_on", "switched_off", "variance_added"),
    measure=measure,
)
