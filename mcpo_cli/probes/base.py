"""What a probe is: the records it reads and what it computes from them. It never touches a gradient."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.journal import Journal, Kind, finite


@dataclass(frozen=True)
class Finding:
    """What a probe says of one run.

    values: numbers of the whole run by name; `x_low` and `x_high` bound the 95 % interval of `x`. A number that the
    records do not determine is left out. tables: rows of the same columns by name of the table, for what is not one
    number: curves (a row a global step), histograms, matrices.
    """

    values: Mapping[str, float]
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data; non-finite numbers as text."""
        plain: dict[str, Any] = finite(
            {"values": dict(self.values), "tables": {k: list(v) for k, v in self.tables.items()}}
        )
        return plain


@dataclass(frozen=True)
class Probe:
    """A declaration, and how the finding is computed.

    question: what it answers, in a sentence. needs: kinds of the journal's rows. shows: names of the values that a
    terminal has room for. settings: overrides that a diagnostic run of its own is started with. suite: of
    `experiments/suites`, what `mcpo probe NAME` runs when nothing else is named; empty for one run.
    """

    name: str
    question: str
    needs: tuple[Kind, ...]
    shows: tuple[str, ...]
    measure: Callable[[RunSpec, Journal], Finding]
    settings: tuple[str, ...] = ()
    suite: str = ""

    def lacks(self, journal: Journal) -> list[Kind]:
        """The kinds of rows it needs that the run has none of."""
        return [kind for kind in self.needs if not journal.files(kind)]


def known(values: Mapping[str, float]) -> dict[str, float]:
    """Without what is not a number."""
    return {name: value for name, value in values.items() if not math.isnan(value)}
