"""Compares two reports: which numbers with intervals, and which verdicts, moved between them, and how far.

For a repetition on another machine, with another version of a library, or from another commit. An interval stands for
what other seeds would give, so a number that moved by less than the intervals says nothing against either report.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from mcpo_cli.analysis.render import Grid
from mcpo_cli.analysis.tables import words
from mcpo_cli.errors import ConfigError
from mcpo_cli.runs.journal import read_json

COMPARED = (
    (("block", "model", "arm", "tier", "metric", "at", "baseline"), ("mean", "low", "high")),
    (("claim", "model", "regime"), ("value", "t_low", "t_high")),
)
"""Tables that are compared: the columns that name a row, and those of its number and interval."""
ROUNDING = 1e-9
"""Differences up to this are not called moves: the tables print ten digits."""


@dataclass(frozen=True)
class Number:
    """One number of a report; the bounds are NaN where it has no interval."""

    value: float
    low: float
    high: float
    verdict: str
    """Empty where the table has none."""

    def to_json(self) -> dict[str, Any]:
        """Its fields as plain data; unknown ones are None."""
        known = {"value": words.number(self.value), "low": words.number(self.low), "high": words.number(self.high)}
        return {**known, "verdict": self.verdict}


@dataclass(frozen=True)
class Move:
    """One number that is another in the new report, or has another verdict."""

    artifact: str
    row: str
    """What names its row: the block or claim, model, arm, ..."""
    old: Number
    new: Number

    @property
    def beyond(self) -> bool | None:
        """Whether 0 lies outside the 95 % interval of the difference; None where one of the two has no interval.

        The interval is that of independent estimates (MOVER, Zou and Donner 2008). Repetitions share their seeds, so
        it is rather too wide.
        """
        lower, upper = (self.old, self.new) if self.new.value > self.old.value else (self.new, self.old)
        reach = math.hypot(lower.high - lower.value, upper.value - upper.low)
        return None if math.isnan(reach) else abs(self.new.value - self.old.value) > reach

    def to_json(self) -> dict[str, Any]:
        """Its fields as plain data; unknown bounds are None."""
        numbers = {"old": self.old.to_json(), "new": self.new.to_json()}
        return {"artifact": self.artifact, "row": self.row, **numbers, "beyond": self.beyond}


@dataclass(frozen=True)
class Comparison:
    """What moved from the report in `folder` to a newer one."""

    folder: Path
    code: Mapping[str, Any]
    """Commit of the old report, and whether its working tree had changes."""
    software: Mapping[str, tuple[str, str]]
    """Packages and machines that the runs of the two reports do not share: those of the old one, of the new one."""
    compared: int
    """Number of rows that both have."""
    single: int
    """Number of rows that only one of them has."""
    moves: Sequence[Move]
    """Verdicts that changed first, then moves beyond the intervals, then the others, the largest first."""

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        beyond = sum(one.beyond is True for one in self.moves)
        verdicts = sum(one.old.verdict != one.new.verdict for one in self.moves)
        return (
            f"Of {self.compared} numbers that both reports have, {len(self.moves)} moved, {beyond} by more "
            f"than the intervals; {verdicts} verdicts changed; {self.single} rows stand in one report only. "
            f"{self._apart}"
        )

    @property
    def _apart(self) -> str:
        """What the runs were trained with, where it is not the same."""
        if not self.software:
            return "The runs of both were trained with the same packages on the same kind of machine."
        apart = [f"{name} {old or 'not recorded'}, now {new or 'none'}" for name, (old, new) in self.software.items()]
        return f"The runs were trained with: {'; '.join(apart)}."

    def grid(self) -> Grid:
        """One row per move."""
        header = ["artifact", "row", "old", "new", "moved", "beyond intervals", "verdict"]
        rows = [[one.artifact, one.row, *_cells(one)] for one in self.moves]
        return Grid(f"Against the report of commit {str(self.code['commit'])[:7]}", header, rows, labels=2)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        about = {"folder": str(self.folder), "code": self.code, "software": dict(self.software)}
        counts = {"compared": self.compared, "single": self.single}
        return {**about, **counts, "moves": [one.to_json() for one in self.moves]}


def check(old: Path, new: Path, scale: str) -> None:
    """Refuse an `old` that is no report to compare with, before anything is built.

    Raises:
        ConfigError: it is no folder of a report, it is `new` itself, or a report of another scale.
    """
    if not (old / "report.json").is_file():
        raise ConfigError(f"--against {old}: no report.json in it", fix="--against HOME/reports/SCALE of another home")
    if old.resolve() == new.resolve():
        raise ConfigError(
            f"--against {old}: that is the report that is about to be written",
            fix=f"cp -r {old} OLD, before the change",
        )
    found = read_json(old / "report.json")["scale"]
    if found != scale:
        raise ConfigError(f"--against {old}: a report of scale {found}, not {scale}", fix=f"scale={found}")


def between(old: Path, new: Path, artifacts: Sequence[str], software: Mapping[str, str]) -> Comparison:
    """What moved from the report in folder `old` to that in `new`, in those `artifacts` that both have.

    software: what the runs of the new report were trained with, by name.
    """
    compared, single, moves = 0, 0, []
    for name in artifacts:
        paths = [folder / f"{name}.csv" for folder in (old, new)]
        if not all(path.exists() for path in paths):
            continue
        was, now = (dict(_numbers(path)) for path in paths)
        both = [row for row in now if row in was]
        compared += len(both)
        single += len(was.keys() ^ now.keys())
        moves += [Move(name, row, was[row], now[row]) for row in both if _moved(was[row], now[row])]
    moves.sort(key=lambda one: (one.old.verdict == one.new.verdict, not one.beyond, -_distance(one)))
    about = read_json(old / "report.json")
    before = about.get("software", {})
    apart = {name: (before.get(name, ""), here) for name, here in software.items() if before.get(name, "") != here}
    return Comparison(old, about["code"], apart, compared, single, moves)


def _numbers(path: Path) -> Iterator[tuple[str, Number]]:
    """The numbers of a table by the name of their row; none if it is no table that is compared."""
    table = pd.read_csv(path)
    for names, (value, low, high) in COMPARED:
        if {*names, value, low, high} <= set(table.columns):
            for row in table[table[low].notna() | (table.get("verdict", "") != "")].to_dict("records"):
                verdict = row.get("verdict", "")
                name = ", ".join(str(row[key]) for key in names if not pd.isna(row[key]))
                yield name, Number(row[value], row[low], row[high], verdict)


def _distance(move: Move) -> float:
    distance = abs(move.new.value - move.old.value)
    return 0.0 if math.isnan(distance) else distance


def _moved(old: Number, new: Number) -> bool:
    return old.verdict != new.verdict or abs(new.value - old.value) > ROUNDING


def _cells(move: Move) -> list[str]:
    old, new = (_shown(one) for one in (move.old, move.new))
    beyond = {True: "yes", False: "no", None: "-"}[move.beyond]
    same = move.old.verdict == move.new.verdict
    verdict = (move.new.verdict or "-") if same else f"{move.old.verdict} -> {move.new.verdict}"
    return [old, new, f"{move.new.value - move.old.value:+.4f}", beyond, verdict]


def _shown(number: Number) -> str:
    bounds = "" if math.isnan(number.low) else f" [{number.low:.3f}, {number.high:.3f}]"
    return f"{number.value:.4f}{bounds}"
