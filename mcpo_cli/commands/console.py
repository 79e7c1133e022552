"""Terminal output: data on stdout, messages and progress on stderr."""

import json
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mcpo_cli.redaction import visible
from mcpo_cli.render.markup import Grid, aligned, tables
from mcpo_cli.runs.journal import finite
from mcpo_cli.scheduling import display
from mcpo_cli.scheduling.display import LINE_SECONDS
from mcpo_cli.statistics.words import TONES

PIPE_WIDTH = 160
"""Columns if stdout is not a terminal; wide enough for every name."""
PROSE = 100
"""Most columns of a line of prose."""
JSON_VERSION = 1
"""Version of the output of `--json`; it changes when a key is removed or changes its meaning."""
STYLES = {"done": "green", "failed": "red", "interrupted": "yellow", "running": "cyan", "planned": "dim"}
STYLES |= {"ok": "green", "wrong": "red", "missing": "yellow"}
STYLES |= {word: {"good": "green", "bad": "red", "open": "yellow"}[tone] for word, tone in TONES.items()}
LONG = 300
"""Rows of a table that are laid out for the terminal, which takes almost a millisecond each."""

talk, duration = display.talk, display.duration
"""Print a message on stderr; seconds as text."""


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout, beginning with its version; JSON has no NaN, see `journal.finite`."""
    numbered = finite({"schema_version": JSON_VERSION, **document})
    sys.stdout.write(json.dumps(numbered, indent=2, allow_nan=False) + "\n")


def print_text(text: str) -> None:
    """Print text on stdout, unchanged except for control characters."""
    sys.stdout.write(visible(text.rstrip("\n")) + "\n")


def talk_pairs(pairs: Mapping[str, str]) -> None:
    """Print names and values on stderr in two columns."""
    longest = max(map(len, pairs))
    for name, value in pairs.items():
        talk(f"  {name:<{longest}}  {value}")


def width() -> int:
    """Width of stdout in columns."""
    console = Console()
    return console.width if console.is_terminal else PIPE_WIDTH


def print_grid(grid: Grid) -> None:
    """Print a table on stdout without its title; a narrow terminal wraps names, but neither breaks numbers nor cuts.

    A table of more than LONG rows is plain text, whose lines may be wider than the terminal.
    """
    if len(grid.rows) > LONG:
        sys.stdout.writelines(f"{line}\n" for line in aligned(grid))
        return
    console = Console(highlight=False, width=width())
    for index, table in enumerate(tables(grid, width(), STYLES)):
        console.print(*(["\n"] if index else []), table, sep="")


def paragraph(text: str) -> str:
    """A sentence, wrapped to the terminal."""
    return textwrap.fill(visible(text), min(width(), PROSE))


def remark(text: str) -> str:
    """A sentence of a list, wrapped to the terminal and indented from its second line on."""
    return textwrap.fill(visible(text), min(width(), PROSE), initial_indent="- ", subsequent_indent="  ")


@contextmanager
def progress(title: str, total: int, unit: str = "problems") -> Iterator[Callable[[], None]]:
    """Show progress and time left on stderr; call the yielded function after each of `total` units.

    Shows a bar on a terminal, else lines.
    """
    console = Console(stderr=True, highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(title, total=total)
            yield lambda: bar.advance(task)
        return
    start = last = time.monotonic()
    done = 0

    def advance() -> None:
        nonlocal done, last
        done, now = done + 1, time.monotonic()
        if now - last >= LINE_SECONDS and done < total:
            last = now
            left = duration((now - start) * (total - done) / done)
            talk(f"{title}: {done} of {total} {unit}, about {left} left")

    yield advance
    talk(f"{title}: {done} of {total} {unit}, {duration(time.monotonic() - start)}")
