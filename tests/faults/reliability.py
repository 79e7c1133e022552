"""The table of docs/reliability.md: what fault tests did and saw, as data, and the page that shows it.

The page is a function of the data, which stands in a JSON file beside it, so that a number changed by hand is noticed.
"""

import ast
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
FIXTURE = "faults"
"""The fixture by which a test records what it injected (conftest.py)."""
HEAD = """\
# Reliability

What happens to runs and results when things go wrong, as the tests of `tests/faults` measured it: each injects its
fault for real, with processes, signals and files, and looks at what is left. This page is written by them; by hand
nothing is changed here (`tests/unit/test_reliability.py`). What each test recorded stands in
[reliability.json](reliability.json).
"""
LEGEND = """\
- **injected**: how often. **lost**: records that an undisturbed run has and the disturbed one, once it was started
  again, has not. **wrong**: results that differ from those of an undisturbed run, or that were taken from a damaged
  file without a word.
- **seconds to recover**: median, from the start of what continues: of a run until it is where it was, without the
  seconds in which Python loads its libraries; of a scheduler, its child or a suite until the command has ended all of
  its runs, with them. A dash: the fault is refused, or passes, and nothing has to be started again.
"""


class Injection(TypedDict):
    """One fault, injected `times` times. seconds: to recover, of each time where there was something to recover."""

    fault: str
    test: str
    times: int
    lost: int
    wrong: int
    seconds: list[float]


class Report(TypedDict):
    """What a session of tests found."""

    date: str
    command: str
    machine: str
    injections: list[Injection]


def page(report: Report) -> str:
    """The page that shows `report`."""
    lines = ["| fault | injected | lost | wrong | seconds to recover |", "|---|---:|---:|---:|---:|"]
    for fault, found in grouped(report["injections"]).items():
        seconds = [second for one in found for second in one["seconds"]]
        sums = [sum(one[key] for one in found) for key in ("times", "lost", "wrong")]
        recovered = f"{statistics.median(seconds):.1f}" if seconds else "-"
        lines.append(f"| {fault} | {sums[0]} | {sums[1]} | {sums[2]} | {recovered} |")
    made = f"Measured on {report['date']} by `{report['command']}` on {report['machine']}."
    return "\n".join([HEAD, made, "", *lines, "", LEGEND])


def grouped(injections: Sequence[Injection]) -> Mapping[str, list[Injection]]:
    """The injections of each fault, by name."""
    found: dict[str, list[Injection]] = {}
    for one in sorted(injections, key=lambda one: (one["test"], one["fault"])):
        found.setdefault(one["fault"], []).append(one)
    return found


def write(report: Report, path: Path) -> None:
    """The page at `path`, and its data beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(report), encoding="utf-8")
    data_of(path).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> Report:
    """The data of the page at `path`."""
    report: Report = json.loads(data_of(path).read_text(encoding="utf-8"))
    return report


def data_of(path: Path) -> Path:
    """The file of the data of the page at `path`."""
    return path.with_suffix(".json")


def recording(folder: Path) -> set[str]:
    """The tests below `folder` that record what they inject, as `file::function`."""
    found = set()
    for path in folder.glob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and FIXTURE in _arguments(node):
                found.add(f"{path.name}::{node.name}")
    return found


def _arguments(node: Any) -> set[str]:
    return {argument.arg for argument in node.args.args}
