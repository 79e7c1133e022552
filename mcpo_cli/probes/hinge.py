"""The hinge in each mini-batch: the prompts it acts on, how often it switches, and the variance it adds to the loss."""

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
"""Names of metrics that MCPO reports for each mini-batch."""


def measure(spec: RunSpec, journal: Journal) -> Finding:
    """The activity of the hinge; empty for a method without a hinge.

    Values:
    - `prompts_felt`, `tokens_active`: shares of mastered prompts and of their tokens outside the drift budget.
    - `penalty` (beta included) and `on`, the share of mini-batches with a penalty above 0: means over gradient steps.
    - `switched_on`, `switched_off`: shares of consecutive mini-batches of a step between which the hinge switches.
    - `variance_policy`, `variance_added`: variance of the loss without the hinge over the mini-batches of a step, and
      the increase by the hinge; means over global steps.

    Table `mini_batches`: the same for each place in the step, with variances over the steps; with anchor=rollout the
    first place has no drift. Table `drift`: tokens by d = log pi - log pi_old in units of delta; the outer bins are
    open.
    """
    rows = [row for row in journal.mini_batches() if FELT in row["sums"]]
    if not rows:
        return Finding({})
    steps, by_place = by_step(rows), defaultdict(list)
    for row in rows:
        by_place[row["mini_batch"]].append(row)
    places = [_place(number, own) for number, own in sorted(by_place.items())]
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
    """The mean of a share over the mini-batches that define it, weighted by its denominator."""
    some = [row for row in rows if row["sums"][metric][1]]
    shares = [row["sums"][metric][0] / row["sums"][metric][1] for row in some]
    counts = [int(row["sums"][metric][1]) for row in some]
    return mean_over_steps(name, shares, [row["step"] for row in some], counts)


def _loss(row: MiniBatchRow, term: str) -> float:
    """The value of a term of the loss; 0 if no sequence had a gradient."""
    return row["sums"].get(f"train/{term}_loss", [0.0])[0]


def _switches(steps: Mapping[int, Sequence[MiniBatchRow]]) -> dict[str, float]:
    pairs = [pair for rows in steps.values() for pair in pairwise(rows)]
    place = [after["step"] for _, after in pairs]
    return {
        **mean_over_steps("switched_on", [float(_on(after) and not _on(before)) for before, after in pairs], place),
        **mean_over_steps("switched_off", [float(_on(before) and not _on(after)) for before, after in pairs], place),
    }


def _variances(steps: Mapping[int, Sequence[MiniBatchRow]]) -> dict[str, float]:
    variances = {step: _variance(rows) for step, rows in steps.items() if len(rows) > 1}
    names = ("variance_policy", "variance_added")
    columns = ((name, [variance[name] for variance in variances.values()]) for name in names)
    return {
        key: value for name, column in columns for key, value in mean_over_steps(name, column, [*variances]).items()
    }


def _variance(rows: Sequence[MiniBatchRow]) -> dict[str, float]:
    """The variance of the loss without the hinge over at least two `rows`, and the increase by the hinge."""
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
    question="On how many mastered prompts does the hinge act, and how does its switching affect the loss?",
    needs=("mini_batches",),
    shows=("prompts_felt", "tokens_active", "penalty", "switched_on", "switched_off", "variance_added"),
    measure=measure,
)
