"""A file with what lists say about each run, so that a home of ten thousand runs opens as quickly as it is shown.

A summary holds while no file that it was read from has changed; sizes and times of change tell. Every listing checks
that, so the file decides nothing: a run that was removed, damaged or continued is read again, and a run that cannot be
read is never in the file. Homes of fewer than LEAST runs have no such file.
"""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from mcpo_cli import __version__, plugins
from mcpo_cli.config import arm_names
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import RunFailed
from mcpo_cli.records import State
from mcpo_cli.runs import attempts, sanity
from mcpo_cli.runs.journal import STEPS, SUMS, Journal, numbered, read_json, write_atomic

FILE = Path("cache", "runs.json")
LEAST = 100
"""Fewest runs of a home with such a file: without it, this number of runs is read in about a second."""
SETTLED_SECONDS = 2.0
"""Age of a file from which on every change gives it another time: clocks of file systems have a resolution."""
PACKAGE = Path(__file__).resolve().parents[1]
SEEDS = ("seed", "base_seed")


@dataclass(frozen=True)
class Summary:
    """What lists say about a run. Runs with equal `settings` or `files` share one object."""

    settings: Mapping[str, Any]
    """Settings that decide the result, by their keys (`train.lr`), without the seeds."""
    seeds: Sequence[int]
    """`seed` and `base_seed`."""
    method: str
    """The label of its method."""
    arm: str | None
    """See `arm_names.label`."""
    origin: dict[str, Any]
    state: State
    """From its records alone, see `attempts.recorded_state`."""
    step: int
    score: float | None
    updated: float | None
    """Time of its last update, in seconds since the epoch."""
    files: Sequence[str] = field(repr=False)
    """The files that it was read from, as paths in the run's folder; the folder itself is "."."""
    stamp: Sequence[int] = field(repr=False)
    """Time of change and size of each of `files`; zeros for a file that does not exist."""

    def holds(self, folder: Path) -> bool:
        """True if no file of the run in `folder` has changed since."""
        return stamp(folder, self.files) == self.stamp

    @property
    def facts(self) -> dict[str, Any]:
        """All settings that decide the result."""
        return {**self.settings, **dict(zip(SEEDS, self.seeds, strict=True))}


def summarise(folder: Path, spec: RunSpec, origin: dict[str, Any]) -> Summary:
    """Read a run whose settings are `spec`; damaged records mean `failed`."""
    files = _files(folder)
    mark, journal = stamp(folder, files), Journal(folder)
    settings = facts(spec)
    return Summary(
        settings={key: value for key, value in settings.items() if key not in SEEDS},
        seeds=[settings[key] for key in SEEDS],
        method=spec.method.label,
        arm=arm_names.label(origin.get("arm", spec.method.label), spec),
        origin=origin,
        state=attempts.recorded_state(folder, spec, journal),
        step=step(journal),
        score=score(journal),
        updated=updated(journal),
        files=files,
        stamp=mark,
    )


def facts(spec: RunSpec) -> dict[str, Any]:
    """All settings that decide the result, as they are read back from JSON: with lists, without tuples."""
    flat = spec.flat_identity(later_too=True)
    return {key: list(value) if isinstance(value, tuple) else value for key, value in flat.items()}


def step(journal: Journal) -> int:
    """The last recorded global step; 0 if its records are damaged."""
    with suppress(RunFailed):
        for attempt in journal.attempts()[-1:]:
            return attempts.newest_step(attempt)[1]
    return 0


def score(journal: Journal) -> float | None:
    """Mean pass@1 over the held-out problems of the last evaluation; None before the first, or if it is damaged."""
    with suppress(RunFailed):
        for path in list(journal.files("eval").values())[-1:]:
            return sanity.accuracy(journal.read(path))
    return None


def updated(journal: Journal) -> float | None:
    """Time of the last update, in seconds since the epoch; None before the first attempt."""
    with suppress(RunFailed):
        for attempt in journal.attempts()[-1:]:
            return float(read_json(attempt / "status.json")["updated"])
    return None


def stamp(folder: Path, files: Sequence[str]) -> list[int]:
    """Time of change and size of each file; zeros for a file that does not exist."""
    numbers, base = list[int](), str(folder)
    for name in files:
        try:
            stat = os.stat(f"{base}/{name}")  # noqa: PTH116 (a Path for each file takes longer than the look at it)
            numbers += (stat.st_ctime_ns, stat.st_size)
        except OSError:
            numbers += (0, 0)
    return numbers


def _files(folder: Path) -> list[str]:
    """The files of a run that a summary depends on, and the folders that list them."""
    files = [".", "spec.json", "origin.json"]
    for attempt in numbered(folder):
        names = (".", "spec.json", "status.json", SUMS, STEPS, "eval")
        evaluations = sorted(path.name for path in (attempt / "eval").glob("*.jsonl"))
        files += [f"{attempt.name}/{name}" for name in (*names, *(f"eval/{name}" for name in evaluations))]
    return files


class Index:
    """The summaries of a home, by run id."""

    def __init__(self, home: Path) -> None:
        self._path, self._made_by = home / FILE, _made_by()
        self._kept = self._load()
        self._now: dict[str, Summary] = {}
        self._read_again = False

    def get(self, folder: Path) -> Summary | None:
        """The summary of the run in `folder`, if it holds."""
        if (summary := self._kept.get(folder.name)) is None or not summary.holds(folder):
            return None
        self._now[folder.name] = summary
        return summary

    def add(self, folder: Path, summary: Summary) -> None:
        """Keep a summary that was just made, unless the next change of a file could leave no trace."""
        if max(summary.stamp[::2]) < (time.time() - SETTLED_SECONDS) * 1e9:
            self._now[folder.name], self._read_again = summary, True

    def save(self) -> None:
        """Write the summaries that hold, unless the file has just them; a disk that is full keeps the file."""
        if self._read_again or len(self._now) < len(self._kept):
            with suppress(RunFailed):
                write_atomic(self._path, self._dump())

    def _load(self) -> dict[str, Summary]:
        """The summaries in the file; none if it is damaged, or other code or plug-ins wrote it."""
        with suppress(OSError, ValueError, KeyError, TypeError, IndexError):
            entries = orjson.loads(self._path.read_bytes())
            if entries["made_by"] == self._made_by:
                return {name: _summary(row, entries["tables"]) for name, row in entries["runs"].items()}
        return {}

    def _dump(self) -> bytes:
        places, tables = dict[bytes, int](), list[Any]()

        def place(value: Any) -> int:
            """The place of `value` among the tables, where equal values are kept once."""
            if (text := orjson.dumps(value)) not in places:
                places[text] = len(tables)
                tables.append(value)
            return places[text]

        runs = {
            name: [
                *(place(summary.settings), summary.seeds, summary.method, summary.arm, summary.origin, summary.state),
                *(summary.step, summary.score, summary.updated, place(summary.files), summary.stamp),
            ]
            for name, summary in self._now.items()
            if _survives([summary.settings, summary.origin])
        }
        return orjson.dumps({"made_by": self._made_by, "tables": tables, "runs": runs})


def _survives(data: Any) -> bool:
    """True if JSON gives `data` back. It has no infinity, and no name of a file that is not UTF-8.

    A run of which that is not true is read every time.
    """
    with suppress(orjson.JSONEncodeError):
        return bool(orjson.loads(orjson.dumps(data)) == data)
    return False


def _summary(row: list[Any], tables: list[Any]) -> Summary:
    """A summary from its row of the file, see `Index._dump`."""
    settings, seeds, method, arm, origin, state, step, score, updated, files, mark = row
    head = (tables[settings], seeds, method, arm, origin, state)
    return Summary(*head, step, score, updated, tables[files], mark)


def _made_by() -> list[str]:
    """What decides how a run's files are read: this package's code and the plug-ins."""
    code = [path.stat() for pattern in ("**/*.py", "conf/**/*.yaml") for path in PACKAGE.glob(pattern)]
    newest = max(stat.st_mtime_ns for stat in code)
    return [__version__, f"{len(code)} {newest}", *(f"{plugin.name} {plugin.sha256}" for plugin in plugins.present())]
