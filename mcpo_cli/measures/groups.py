"""Measures of the groups of a run: accuracies, classes of prompts, entropies, signs of an unsound run."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.measures.base import (
    CLASSES,
    Finding,
    Measure,
    by_step,
    class_of,
    ends,
    mean_over_steps,
    means,
    without_nan,
)
from mcpo_cli.records import BINS, GroupRow
from mcpo_cli.runs import sanity
from mcpo_cli.runs.journal import Journal


def _histogram(spec: RunSpec, journal: Journal) -> Finding:
    """Shares among all sampled prompt groups, before any filter; a prompt counts each time it is sampled.

    Table `bins`: `prompts` and `share` for each p = k/G; a group of another size counts at the bin nearest to its p.
    Table `steps`: the same for each global step.
    """
    groups, G = journal.groups(), spec.train.rollouts
    steps = [group["step"] for group in groups]

    def is_middle(row: GroupRow) -> bool:
        rollouts = row.get("rollouts", G)
        return rollouts <= 3 * round(row["p"] * rollouts) <= 2 * rollouts

    values = {"prompts": float(len(groups))} | means(
        groups,
        accuracy=lambda row: row["p"],
        at_0=lambda row: row["p"] == 0,
        at_1=lambda row: row["p"] == 1,
        middle=is_middle,
    )
    places = [round(group["p"] * G) for group in groups]
    shares = [mean_over_steps("share", [float(place == k) for place in places], steps) for k in range(G + 1)]
    bins = [row | share for row, share in zip(_counts(G, groups), shares, strict=True)]
    table = [
        {"step": step, **row, "share": row["prompts"] / len(of_step)}
        for step, of_step in by_step(groups).items()
        for row in _counts(G, of_step)
    ]
    return Finding(values, {"bins": bins, "steps": table})


def _counts(G: int, groups: Sequence[GroupRow]) -> list[dict[str, Any]]:
    counts = Counter(round(row["p"] * G) for row in groups)
    return [{"right": k, "p": k / G, "prompts": counts[k]} for k in range(G + 1)]


HISTOGRAM = Measure(
    name="histogram",
    question="How is the accuracy of training prompts distributed: are most of them at the ends?",
    needs=("groups",),
    values={
        "prompts": "number of sampled prompt groups",
        "accuracy": "mean accuracy of sampled prompts",
        "at_0": "share of sampled prompts with p = 0",
        "at_1": "share of sampled prompts with p = 1",
        "middle": "share of sampled prompts with 1/3 <= p <= 2/3; 5/17 for G = 16 if all k were equally frequent",
    },
    shows=("accuracy", "at_0", "middle", "at_1", "prompts"),
    measure=_histogram,
)


def _composition(spec: RunSpec, journal: Journal) -> Finding:
    """Shares among all sampled prompt groups, before any filter.

    Table `steps`: the values of each global step.
    """
    groups = journal.groups()
    shares = {name: partial(_is_of, name) for name in CLASSES}
    table = [
        {"step": step, "prompts": len(of_step), **{name: fmean(map(share, of_step)) for name, share in shares.items()}}
        for step, of_step in by_step(groups).items()
    ]
    return Finding({"prompts": float(len(groups)), **means(groups, **shares)}, {"steps": table})


def _is_of(name: str, row: GroupRow) -> bool:
    return class_of(row["p"]) == name


COMPOSITION = Measure(
    name="composition",
    question="Which share of the prompts is mastered, mostly right, mostly wrong, all wrong?",
    needs=("groups",),
    values={
        "prompts": "number of sampled prompt groups",
        "all_wrong": "share of sampled prompts with p = 0",
        "minority": "share of sampled prompts with 0 < p <= .5",
        "majority_correct": "share of sampled prompts with .5 < p < 1",
        "mastered": "share of sampled prompts with p = 1",
    },
    shows=("mastered", "majority_correct", "minority", "all_wrong"),
    measure=_composition,
)


def _entropy(spec: RunSpec, journal: Journal) -> Finding:
    """Exact token entropies in nats (Fig. 6, without its "optimal zone", which has no numbers): the mean over a group's
    tokens, then over groups with equal weight.

    Table `steps`: the means of each global step, and the entropy of each class of prompts. Table `accuracy`: the same
    values for each accuracy bin.
    """
    rows = [row for row in journal.groups() if "entropy" in row]
    steps = [_entropy_step(*item) for item in by_step(rows).items()]
    first, last = ends([row["entropy"] for row in steps])
    change = without_nan({"rise": last - first, "kept": last / first if first else math.nan})
    return Finding(means(rows, **ENTROPIES) | change, {"steps": steps, "accuracy": _entropy_bins(rows)})


def _wrong_minus_right(row: GroupRow) -> float | None:
    return row["entropy_wrong"] - row["entropy_right"] if {"entropy_right", "entropy_wrong"} <= row.keys() else None


ENTROPIES: Mapping[str, Callable[[GroupRow], float | None]] = {
    "entropy": lambda row: row["entropy"],
    "right": lambda row: row.get("entropy_right"),
    "wrong": lambda row: row.get("entropy_wrong"),
    "wrong_minus_right": _wrong_minus_right,
}


def _entropy_step(step: int, rows: Sequence[GroupRow]) -> dict[str, Any]:
    """The row of one step: means without intervals, which need several steps."""
    columns = {name: [value for row in rows if (value := of(row)) is not None] for name, of in ENTROPIES.items()}
    columns |= {name: [row["entropy"] for row in rows if class_of(row["p"]) == name] for name in CLASSES}
    return {"step": step, **{name: fmean(values) for name, values in columns.items() if values}}


def _entropy_bins(rows: Sequence[GroupRow]) -> list[dict[str, Any]]:
    bins = {"0": [row for row in rows if row["p"] == 0]}
    for low, high in BINS:
        name = f"({low:g}, {high:g}{')' if high == 1 else ']'}"
        bins[name] = [row for row in rows if low < row["p"] <= high and row["p"] < 1]
    bins["1"] = [row for row in rows if row["p"] == 1]
    return [{"p": name, "prompts": len(of_step), **means(of_step, **ENTROPIES)} for name, of_step in bins.items()]


ENTROPY = Measure(
    name="entropy",
    question="How uncertain is the policy, by the accuracy of the prompt and by right and wrong answers?",
    needs=("groups",),
    values={
        "entropy": "mean entropy (nats) of all rollouts",
        "right": "mean entropy (nats) of correct rollouts",
        "wrong": "mean entropy (nats) of incorrect rollouts",
        "wrong_minus_right": "mean entropy (nats) of incorrect minus that of correct rollouts of the same prompts",
        "rise": "mean entropy (nats) of the last fifth of the steps minus the first",
        "kept": "mean entropy of the last fifth of the steps as a share of that of the first",
    },
    shows=("entropy", "right", "wrong", "wrong_minus_right"),
    measure=_entropy,
)


PREFIX = "sanity/"


def _sanity(spec: RunSpec, journal: Journal) -> Finding:
    """The metrics `sanity/x` as `x`, and the limits that they exceed.

    Table `steps`: the metrics at each global step. Table `warnings`: see `runs/sanity.py`.
    """
    rows = journal.steps()
    table: list[dict[str, Any]] = [
        {"step": row["step"]}
        | {name.removeprefix(PREFIX): value for name, value in row["metrics"].items() if name.startswith(PREFIX)}
        for row in rows
    ]
    warned = sanity.warnings(rows)
    values = {"warnings": float(len(warned))}
    for name in sorted({name for row in table for name in row} - {"step"}):
        column = {row["step"]: row[name] for row in table if name in row}
        values |= mean_over_steps(name, list(column.values()), list(column))
        values[f"{name}_worst"] = max(column.values())
    return Finding(values, {"steps": table, "warnings": [dict(warning) for warning in warned]})


SANITY = Measure(
    name="sanity",
    question="Is the run sound: independent rollouts, whole responses, one policy that samples and trains, reasoning?",
    needs=("steps",),
    values={
        "warnings": "number of limits exceeded",
        "*_worst": "largest value at a global step",
        "*": "mean over the global steps",
    },
    shows=("duplicates", "duplicates_expected", "truncated", "logp_difference", "bare_right", "warnings"),
    measure=_sanity,
)

MEASURES = (HISTOGRAM, COMPOSITION, ENTROPY, SANITY)
