"""The types of a measure, and functions that measures share."""

import dataclasses
import inspect
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import itemgetter
from statistics import fmean
from typing import Any, Literal, TypeVar

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.journal import Journal, Kind, finite
from mcpo_cli.statistics import clusters
from mcpo_cli.statistics.stats import Floats

T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    """The result of a measure for one run."""

    values: Mapping[str, float]
    """Numbers of the whole run by name; undetermined ones are absent. `x_low`, `x_high`: 95 % interval of `x`."""
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = dataclasses.field(default_factory=dict)
    """Tables by name, each a list of rows with the same columns: curves (one row per step), histograms, matrices."""

    def to_json(self) -> dict[str, Any]:
        """The finding as plain data; non-finite numbers become text."""
        document: dict[str, Any] = finite(
            {"values": dict(self.values), "tables": {k: list(v) for k, v in self.tables.items()}}
        )
        return document


Rows = Kind | Literal["steps"]
"""The kinds of rows of a journal; `steps` has the metrics."""


@dataclass(frozen=True)
class Measure:
    """The declaration of a measure, which is computed from the records of a run and never affects training."""

    name: str
    question: str
    """The question that it answers, in one sentence."""
    needs: tuple[Rows, ...]
    """The kinds of rows that it reads."""
    shows: tuple[str, ...]
    """The names of the main values, which the terminal shows."""
    measure: Callable[[RunSpec, Journal], Finding]
    """Computes the finding from a run's records."""
    values: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What each value means, by name: a claim `NAME.VALUE` is about one of them. `*` stands for any text; values
    `VALUE, *` are parts (tiers, thirds); a claim `NAME.VALUE` is about all of its parts."""
    also: tuple[Rows, ...] = ()
    """Further kinds of rows that it reads where a run has them."""
    settings: tuple[str, ...] = ()
    """The overrides of a diagnostic run started for this measure."""
    suite: str = ""
    """The suite that `mcpo probe NAME` runs by default; empty means a single run."""

    def __post_init__(self) -> None:
        """Refuse, where a plug-in declares it, a function that cannot be called with a run and its journal."""
        inspect.signature(self.measure).bind(None, None)

    def lacks(self, journal: Journal) -> list[Rows]:
        """The needed kinds of rows that the run lacks."""
        return [kind for kind in self.needs if not (journal.steps() if kind == "steps" else journal.files(kind))]

    def meaning(self, value: str) -> str | None:
        """What the value, or each of its parts, means; None if the measure has no such value."""
        names = (value, f"{value}, *")
        return next(
            (text for name, text in self.values.items() if any(fnmatchcase(pattern, name) for pattern in names)), None
        )


def numbered(items: Iterable[T]) -> list[tuple[T, int]]:
    """Each item with the number of equal ones before it: a prompt may occur several times in a step."""
    counts: Counter[T] = Counter()
    pairs = []
    for item in items:
        pairs.append((item, counts[item]))
        counts[item] += 1
    return pairs


def without_nan(values: Mapping[str, float]) -> dict[str, float]:
    """`values` without NaN."""
    return {name: value for name, value in values.items() if not math.isnan(value)}


CLASSES = ("all_wrong", "minority", "majority_correct", "mastered")
"""In this order: p = 0, 0 < p <= 0.5, 0.5 < p < 1, p = 1."""


def class_of(p: float) -> str:
    """The class of accuracy p, one of CLASSES."""
    if p in (0, 1):
        return CLASSES[-1] if p else CLASSES[0]
    return "minority" if p <= 0.5 else "majority_correct"


def ends(values: Sequence[float] | Floats) -> tuple[float, float]:
    """Means of the first and the last fifth of the values, of one at least; NaN without values."""
    fifth = max(1, len(values) // 5)
    return (fmean(values[:fifth]), fmean(values[-fifth:])) if len(values) else (math.nan, math.nan)


Row = TypeVar("Row", bound=Mapping[str, Any])


def by_step(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """The rows of each global step, in the order of the steps."""
    grouped: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row["step"]].append(row)
    return dict(sorted(grouped.items()))


def mean_over_steps(
    name: str, values: Sequence[float], steps: Sequence[int], weights: Sequence[float] | None = None
) -> dict[str, float]:
    """The mean of `values` as `name`, with its interval `name_low` and `name_high`; empty without values.

    steps: the global step of each value. weights: 1 each by default. The interval treats values of one step as
    correlated and steps as independent.
    """
    if not values:
        return {}
    mean = clusters.mean(values, weights or [1] * len(values), steps).interval()
    return without_nan({name: mean.mean, f"{name}_low": mean.low, f"{name}_high": mean.high})


def means(
    rows: Sequence[Any], by: Callable[[Any], int] = itemgetter("step"), /, **values: Callable[[Any], float | None]
) -> dict[str, float]:
    """`mean_over_steps` of each of `values`, over the rows for which it is not None; `by` gives a row's step."""
    intervals: dict[str, float] = {}
    for name, value in values.items():
        pairs = [(float(number), by(row)) for row in rows if (number := value(row)) is not None]
        intervals |= mean_over_steps(name, [number for number, _ in pairs], [step for _, step in pairs])
    return intervals
