"""The measure of metrics: each metric that a run records at its global steps as a few numbers of the whole run."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.measures.base import Finding, Measure, ends
from mcpo_cli.runs.journal import Journal
from mcpo_cli.statistics.stats import Floats

THIRDS = ("first third", "second third", "last third")


def series(rows: Iterable[Mapping[str, float]], *names: str) -> Floats:
    """The sum of these metrics or columns in each row that has all of them."""
    return np.array([sum(row[name] for name in names) for row in rows if all(name in row for name in names)])


def _training(spec: RunSpec, journal: Journal) -> Finding:
    recorded: dict[str, list[float]] = defaultdict(list)
    for row in journal.steps():
        for name, value in row["metrics"].items():
            recorded[name].append(value)
    values: dict[str, float] = {}
    for name, column in recorded.items():
        first, last = ends(column)
        thirds = zip(THIRDS, np.array_split(column, len(THIRDS)), strict=True)
        by_third = {third: float(part.mean()) for third, part in thirds if part.size}
        values |= {name: float(np.mean(column)), f"{name} in the end": last, f"{name} rise": last - first}
        values[f"{name} at the last step"] = column[-1]
        values |= {f"{name} by third, {third}": value for third, value in by_third.items()}
        values |= {
            f"{name} rise by third, {after} minus {before}": by_third[after] - by_third[before]
            for before, after in pairwise(by_third)
        }
    return Finding(values)


TRAINING = Measure(
    name="training",
    question="What are the metrics of training on average, in the end, and how do they change?",
    needs=("steps",),
    values={
        "*/* in the end": "mean over the last fifth of the steps",
        "*/* rise": "mean over the last fifth of the steps minus that over the first",
        "*/* at the last step": "value at the last step",
        "*/* by third, *": "mean over a third of the steps",
        "*/* rise by third, *": "mean over a third of the steps minus that over the third before",
        "*/*": "mean over the steps that have the metric",
    },
    shows=("train/accuracy in the end", "train/entropy in the end", "train/response_length in the end"),
    measure=_training,
)
MEASURES = (TRAINING,)
