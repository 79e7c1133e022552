"""The types of a probe. A probe reads the records of a run and computes values from them; it never affects training."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.journal import Journal, Kind, finite


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
    """The kinds of journal rows that it reads."""
    shows: tuple[str, ...]
    """The names of the main values, which the terminal shows."""
    measure: Callable[[RunSpec, Journal], Finding]
    """Computes the finding from a run's records."""
    settings: tuple[str, ...] = ()
    """The overrides of a diagnostic run started for this probe."""
    suite: str = ""
    """The suite that `mcpo probe NAME` runs by default; empty means a single run."""

    def lacks(self, journal: Journal) -> list[Kind]:
        """The needed kinds of rows that the run lacks."""
        return [kind for kind in self.needs if not journal.files(kind)]


def known(values: Mapping[str, float]) -> dict[str, float]:
    """`values` without NaN."""
    return {name: value for name, value in values.items() if not math.isnan(value)}
