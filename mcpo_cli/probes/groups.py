"""Probes of the groups of a run: accuracies, classes of prompts, entropies, signs of an unsound run."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from mcpo_cli.backends.measure import BINS
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.probes.base import CLASSES, Finding, Probe, by_step, class_of, mean_over_steps
from mcpo_cli.records import GroupRow
from mcpo_cli.runs import sanity
from mcpo_cli.runs.journal import Journal


def _histogram(spec: RunSpec, journal: Journal) -> Finding:
    """Shares among all sampled prompt groups, before any filter; a prompt counts each time it is sampled.

    Values: `prompts`, their mean `accuracy`, and the shares `at_0` (p = 0), `at_1` (p = 1) and `middle`
    (1/3 <= p <= 2/3; 5/17 for G = 16 if all k were equally frequent).
    Table `bins`: `prompts` and `share` for each p = k/G. Table `steps`: the same for each global step.
    """
    groups, G = journal.groups(), spec.train.rollouts
    steps = [row["step"] for row in groups]
    right = [round(row["p"] * G) for row in groups]
    values = {
        "prompts": float(len(groups)),
        **mean_over_steps("accuracy", [row["p"] for row in groups], steps),
        **mean_over_steps("at_0", [float(k == 0) for k in right], steps),
        **mean_over_steps("at_1", [float(k == G) for k in right], steps),
        **mean_over_steps("middle", [float(G <= 3 * k <= 2 * G) for k in right], steps),
    }
    bins = [
        row | mean_over_steps("share", [float(k == row["right"]) for k in right], steps) for row in _counts(G, groups)
    ]
    table = [
        {"step": step, **row, "share": row["prompts"] / len(here)}
        for step, here in by_step(groups).items()
        for row in _counts(G, here)
    ]
    return Finding(values, {"bins": bins, "steps": table})


def _counts(G: int, groups: Sequence[GroupRow]) -> list[dict[str, Any]]:
    counts = Counter(round(row["p"] * G) for row in groups)
    return [{"right": k, "p": k / G, "prompts": counts[k]} for k in range(G + 1)]


HISTOGRAM = Probe(
    name="histogram",
    question="How is the accuracy of training prompts distributed: are most of them at the ends?",
    needs=("groups",),
    shows=("accuracy", "at_0", "middle", "at_1", "prompts"),
    measure=_histogram,
)


def _composition(spec: RunSpec, journal: Journal) -> Finding:
    """Shares among all sampled prompt groups, before any filter.

    Values: the share of each class over the run, and `prompts`, the number of groups. Table `steps`: the same for each
    global step.
    """
    groups = journal.groups()
    steps = [row["step"] for row in groups]
    classes = [class_of(row["p"]) for row in groups]
    values = {"prompts": float(len(groups))}
    for name in CLASSES:
        values |= mean_over_steps(name, [float(own == name) for own in classes], steps)
    sizes, counts = Counter(steps), Counter(zip(steps, classes, strict=True))
    table = [
        {"step": step, "prompts": size, **{name: counts[step, name] / size for name in CLASSES}}
        for step, size in sorted(sizes.items())
    ]
    return Finding(values, {"steps": table})


COMPOSITION = Probe(
    name="composition",
    question="Which share of the prompts is mastered, mostly right, mostly wrong, all wrong?",
    needs=("groups",),
    shows=("mastered", "majority_correct", "minority", "all_wrong"),
    measure=_composition,
)


def _entropy(spec: RunSpec, journal: Journal) -> Finding:
    """Exact token entropies in nats (Fig. 6, without its "optimal zone", which has no numbers): the mean over a group's
    tokens, then over groups with equal weight.

    Values: `entropy` of all rollouts; `right` and `wrong`, of the correct and the incorrect ones; `wrong_minus_right`,
    over groups that have both, so that the prompts are the same. Table `steps`: the same for each global step, and the
    entropy of each class of prompts. Table `accuracy`: the same values for each accuracy bin.
    """
    rows = [row for row in journal.groups() if "entropy" in row]
    return Finding(
        _entropy_means(rows),
        {"steps": [_entropy_step(*item) for item in by_step(rows).items()], "accuracy": _entropy_bins(rows)},
    )


def _entropies(rows: Sequence[GroupRow]) -> dict[str, list[tuple[int, float]]]:
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


def _entropy_means(rows: Sequence[GroupRow]) -> dict[str, float]:
    """The mean of each value, with its interval over steps."""
    means: dict[str, float] = {}
    for name, pairs in _entropies(rows).items():
        means |= mean_over_steps(name, [value for _, value in pairs], [step for step, _ in pairs])
    return means


def _entropy_step(step: int, rows: Sequence[GroupRow]) -> dict[str, Any]:
    """The row of one step: means without intervals, which need several steps."""
    entropies = {name: [value for _, value in pairs] for name, pairs in _entropies(rows).items()}
    for name in CLASSES:
        entropies[name] = [row["entropy"] for row in rows if class_of(row["p"]) == name]
    return {"step": step, **{name: fmean(values) for name, values in entropies.items() if values}}


def _entropy_bins(rows: Sequence[GroupRow]) -> list[dict[str, Any]]:
    inner = {
        f"({low:g}, {high:g}{')' if high == 1 else ']'}": [
            row for row in rows if low < row["p"] <= high and row["p"] < 1
        ]
        for low, high in BINS
    }
    ends = ([row for row in rows if row["p"] == end] for end in (0, 1))
    bins = {"0": next(ends), **inner, "1": next(ends)}
    return [{"p": name, "prompts": len(here), **_entropy_means(here)} for name, here in bins.items()]


ENTROPY = Probe(
    name="entropy",
    question="How uncertain is the policy, by the accuracy of the prompt and by right and wrong answers?",
    needs=("groups",),
    shows=("entropy", "right", "wrong", "wrong_minus_right"),
    measure=_entropy,
)


PREFIX = "sanity/"
WORST = 5
"""Number of steps listed for each metric."""


def _sanity(spec: RunSpec, journal: Journal) -> Finding:
    """Each metric `sanity/x` as `x`, its mean over global steps, and `x_worst`, its largest value.

    Another value is `warnings`, the number of limits exceeded. Table `steps`: the metrics at each global step. Table
    `worst`: the steps with the largest values of each metric. Table `warnings`: see `runs/sanity.py`.
    """
    rows = journal.steps()
    table: list[dict[str, Any]] = [
        {
            "step": row["step"],
            **{_short(name): value for name, value in row["metrics"].items() if name.startswith(PREFIX)},
        }
        for row in rows
    ]
    if not rows:
        return Finding({})
    warned = sanity.warnings(rows)
    values, worst = {"warnings": float(len(warned))}, []
    for name in sorted({name for row in table for name in row} - {"step"}):
        column = {row["step"]: row[name] for row in table if name in row}
        values |= mean_over_steps(name, list(column.values()), list(column))
        values[f"{name}_worst"] = max(column.values())
        largest = sorted(column, key=lambda step: column[step], reverse=True)[:WORST]
        worst += [{"metric": name, "step": step, "value": column[step]} for step in largest]
    return Finding(values, {"steps": table, "worst": worst, "warnings": [dict(one) for one in warned]})


def _short(name: str) -> str:
    return name.removeprefix(PREFIX)


SANITY = Probe(
    name="sanity",
    question="Is the run sound: independent rollouts, whole responses, one policy that samples and trains, reasoning?",
    needs=(),
    shows=("duplicates", "duplicates_expected", "truncated", "logp_difference", "bare_right", "warnings"),
    measure=_sanity,
)

PROBES = (HISTOGRAM, COMPOSITION, ENTROPY, SANITY)
