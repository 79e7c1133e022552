"""The types of a probe, which reads the records of a run and never affects training; and what probes share."""

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeVar

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.journal import Journal, Kind, finite
from mcpo_cli.statistics import clusters

T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    """The result of a probe for one run."""

    values: Mapping[str, float]
    """Numbers of the whole run by name; undetermined ones are absent. `x_low`, `x_high`: 95 % interval of `x`."""
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = dataclasses.field(default_factory=dict)
    """Tables by name, each a list of rows with the same columns: curves (one row per step), histograms, matrices."""

    def to_json(self) -> dict[str, Any]:
        """The finding as plain data; non-finite numbers become text."""
        plain: dict[str, Any] = finite(
            {"values": dict(self.values), "tables": {k: list(v) for k, v in self.tables.items()}}
        )
        return plain


@dataclass(frozen=True)
class Probe:
    """The declaration of a probe."""

    name: str
    question: str
    """The question that it answers, in one sentence."""
    needs: tuple[Kind, ...]
    """The kinds of journal rows that it reads. Without any it asks about settings: no run is trained for it."""
    shows: tuple[str, ...]
    """The names of the main values, which the terminal shows."""
    measure: Callable[[RunSpec, Journal], Finding]
    """Computes the finding from a run's records."""
    settings: tuple[str, ...] = ()
    """The overrides of a diagnostic run started for this probe."""
    suite: str = ""
    """The suite that `mcpo probe NAME` runs by default; empty means a single run."""
    every: str = ""
    """The group of choices, such as `method`, all of which `mcpo probe NAME` asks about by default."""

    def lacks(self, journal: Journal) -> list[Kind]:
        """The needed kinds of rows that the run lacks."""
        return [kind for kind in self.needs if not journal.files(kind)]


def numbered(items: Iterable[T]) -> list[tuple[T, int]]:
    """Each item with the number of equal ones before it: a prompt may occur several times in a step."""
    seen: Counter[T] = Counter()
    found = []
    for item in items:
        found.append((item, seen[item]))
        seen[item] += 1
    return found


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
    found: dict[str, float] = {}
    for name, value in values.items():
        pairs = [(float(number), by(row)) for row in rows if (number := value(row)) is not None]
        found |= mean_over_steps(name, [number for number, _ in pairs], [step for _, step in pairs])
    return found
