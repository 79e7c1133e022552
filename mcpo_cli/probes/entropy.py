"""Entropy of the policy at the tokens of its rollouts (Fig. 6), by accuracy and by right and wrong answers.

The paper shades an "optimal zone" but gives no numbers for it, so it is not reproduced here.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from mcpo_cli.backends.measure import BINS
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.probes.base import Finding, Probe
from mcpo_cli.probes.classes import CLASSES, class_of
from mcpo_cli.probes.intervals import by_step, mean_over_steps
from mcpo_cli.records import GroupRow
from mcpo_cli.runs.journal import Journal


def measure(spec: RunSpec, journal: Journal) -> Finding:
    """Exact token entropies in nats: the mean over a group's tokens, then over groups with equal weight.

    Values: `entropy` of all rollouts; `right` and `wrong`, of the right and the wrong ones; `wrong_minus_right`, over
    groups that have both, so that the prompts are the same.
    Table `steps`: the same for each global step, and the entropy of each class of prompts. Table `accuracy`: the same
    values for each accuracy bin.
    """
    rows = [row for row in journal.groups() if "entropy" in row]
    return Finding(_means(rows), {"steps": [_step(*item) for item in by_step(rows).items()], "accuracy": _bins(rows)})


def _values(rows: Sequence[GroupRow]) -> dict[str, list[tuple[int, float]]]:
    """For each value, the global step and entropy of every group that has it."""
    return {
        "entropy": [(row["step"], row["entropy"]) for row in rows],
        "right": [(row["step"], row["entropy_right"]) for row in rows if "entropy_right" in row],
        "wrong": [(row["step"], row["entropy_wrong"]) for row in rows if "entropy_wrong" in row],
        "wrong_minus_right": [
            (row["step"], row["entropy_wrong"] - row["entropy_right"])
            for row in rows
            if "entropy_right" in row and "entropy_wrong" in row
        ],
    }


def _means(rows: Sequence[GroupRow]) -> dict[str, float]:
    """The mean of each value, with its interval over steps."""
    means: dict[str, float] = {}
    for name, pairs in _values(rows).items():
        means |= mean_over_steps(name, [value for _, value in pairs], [step for step, _ in pairs])
    return means


def _step(step: int, rows: Sequence[GroupRow]) -> dict[str, Any]:
    """The row of one step: means without intervals, which need several steps."""
    entropies = {name: [value for _, value in pairs] for name, pairs in _values(rows).items()}
    for name in CLASSES:
        entropies[name] = [row["entropy"] for row in rows if class_of(row["p"]) == name]
    return {"step": step, **{name: fmean(values) for name, values in entropies.items() if values}}


def _bins(rows: Sequence[GroupRow]) -> list[dict[str, Any]]:
    inner = {
        f"({low:g}, {high:g}{')' if high == 1 else ']'}": [
            row for row in rows if low < row["p"] <= high and row["p"] < 1
        ]
        for low, high in BINS
    }
    ends = ([row for row in rows if row["p"] == end] for end in (0, 1))
    bins = {"0": next(ends), **inner, "1": next(ends)}
    return [{"p": name, "prompts": len(here), **_means(here)} for name, here in bins.items()]


PROBE = Probe(
    name="entropy",
    question="How uncertain is the policy, by the accuracy of the prompt and by right and wrong answers?",
    needs=("groups",),
    shows=("entropy", "right", "wrong", "wrong_minus_right"),
    measure=measure,
)
