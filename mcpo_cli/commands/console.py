"""Terminal output: data on stdout, messages and progress on stderr."""

import json
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mcpo_cli.analysis.render import Grid, tables
from mcpo_cli.errors import ConfigError
from mcpo_cli.redaction import visible
from mcpo_cli.runs.journal import finite
from mcpo_cli.scheduling.progress import RunView, View

PIPE_WIDTH = 160
"""Columns if stdout is not a terminal; wide enough for every name."""
LINE_SECONDS = 5.0
"""Least seconds between two progress lines about the same run."""
STANDSTILL_SECONDS = 60.0
"""Least seconds between two equal progress lines."""
PROSE = 100
"""Most columns of a line of prose."""
BAR_WIDTH, LEFT_WIDTH, LEAST_DETAILS = 10, len("1:00:00 left"), 12
"""Columns of a running cell's bar and time left, and the fewest that its details must have next to a bar."""
JSON_VERSION = 1
"""Version of the output of `--json`; it changes when a key is removed or changes its meaning."""
LIVE_METRICS = {"accuracy": "train/accuracy", "mastered": "mastery/mastered"}
STYLES = {"done": "green", "failed": "red", "interrupted": "yellow", "running": "cyan", "planned": "dim"}
STYLES |= {"ok": "green", "wrong": "red", "missing": "yellow"}
STYLES |= {"supported": "green", "contradicted": "red", "unresolved": "yellow"}
STYLES |= {"better": "green", "not worse": "green", "equivalent": "green", "worse": "red", "undecided": "yellow"}


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout, beginning with its version; JSON has no NaN, see `journal.finite`."""
    numbered = finite({"schema_version": JSON_VERSION, **document})
    sys.stdout.write(json.dumps(numbered, indent=2, allow_nan=False) + "\n")


def print_list(name: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, as_json: bool) -> None:
    """Print `rows` on stdout: as JSON, all of them under `name`, or the `columns` (key -> heading) as a table."""
    if as_json:
        print_json({name: rows})
    else:
        print_table([*columns.values()], [[str(row[key] or "-") for key in columns] for row in rows])


def print_text(text: str) -> None:
    """Print text on stdout, unchanged except for control characters."""
    sys.stdout.write(visible(text.rstrip("\n")) + "\n")


def talk(text: str) -> None:
    """Print a message on stderr."""
    sys.stderr.write(visible(text) + "\n")
    sys.stderr.flush()


def talk_pairs(pairs: Mapping[str, str]) -> None:
    """Print names and values on stderr in two columns; a narrow terminal wraps the values."""
    console, longest = Console(stderr=True, highlight=False), max(map(len, pairs))
    if not console.is_terminal:
        for name, value in pairs.items():
            talk(f"  {name:<{longest}}  {value}")
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs.items():
        table.add_row(f"  {name}", Text(value))
    console.print(table)


def width() -> int:
    """Width of stdout in columns."""
    console = Console()
    return console.width if console.is_terminal else PIPE_WIDTH


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of names and texts on stdout; see `print_grid`."""
    print_grid(Grid("", columns, list(rows), labels=len(columns)))


def print_grid(grid: Grid) -> None:
    """Print a table on stdout without its title; a narrow terminal wraps names, but neither breaks numbers nor cuts."""
    console = Console(highlight=False, width=width())
    for index, table in enumerate(tables(grid, width(), STYLES)):
        console.print(*(["\n"] if index else []), table, sep="")


def print_paragraph(text: str) -> None:
    """Print a sentence on stdout, wrapped to the terminal."""
    print_text(textwrap.fill(visible(text), min(width(), PROSE)))


def print_remark(text: str) -> None:
    """Print a sentence on stdout, wrapped to the terminal and indented from its second line on."""
    print_text(textwrap.fill(visible(text), min(width(), PROSE), initial_indent="- ", subsequent_indent="  "))


def seconds(option: str, text: str) -> float:
    """The seconds that `90s`, `45m`, `2h` or `1.5h` stand for.

    Raises:
        ConfigError: `text` has another form; the message names `option`.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if not found or not float(found[1]):
        raise ConfigError(f"{option} {text}: must be a time such as 90s, 45m or 2h", fix=f"{option} 2h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def duration(seconds: float) -> str:
    """`1:02:03`, or `2:03` below an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def display() -> "LiveDisplay | LineDisplay":
    """A live display on a terminal, else lines."""
    console = Console(stderr=True, highlight=False)
    is_live = console.is_terminal and not console.is_dumb_terminal
    return LiveDisplay(console) if is_live else LineDisplay()


class LiveDisplay:
    """The plan and one row per running cell, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: AbstractContextManager[Any] = nullcontext()

    def __enter__(self) -> "LiveDisplay":
        self._live = Live(console=self.console, auto_refresh=False)
        self._live.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._live.__exit__(*details)

    def update(self, view: View) -> None:
        """Redraw."""
        assert isinstance(self._live, Live)
        self._live.update(Group(Text(header(view), style="bold"), self._table(view), *_failures(view)), refresh=True)

    def note(self, text: str) -> None:
        """Print a line above the display; the terminal wraps it, so that links stay intact."""
        self.console.print(text, markup=False, soft_wrap=True)

    def _table(self, view: View) -> Table:
        running = [cell for cell in view.cells if cell.state == "running"]
        names = [cell.cell.spec.run_id for cell in running]
        table = Table.grid(padding=(0, 1))
        # If space is short, first details are cut, then the bar is dropped; name and time left always stay.
        longest = max(map(len, names), default=0)
        room = self.console.width - longest - LEFT_WIDTH - BAR_WIDTH - 3
        has_bar = room >= LEAST_DETAILS
        table.add_column(no_wrap=True, min_width=longest)
        table.add_column(no_wrap=True, min_width=LEFT_WIDTH, justify="right")
        if has_bar:
            table.add_column(no_wrap=True, width=BAR_WIDTH)
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=max(1, room if has_bar else room + BAR_WIDTH))
        for name, cell in zip(names, running, strict=True):
            bar = ProgressBar(total=cell.cell.spec.train.steps, completed=cell.progress.step, width=BAR_WIDTH)
            left = cell.progress.seconds_left
            shown: list[RenderableType] = [name, "" if left is None else f"{duration(left)} left"]
            table.add_row(*shown, *([bar] if has_bar else []), ", ".join(_activity(cell)))
        return table


class LineDisplay:
    """Lines on stderr: every change of state, and each run's progress.

    Progress is printed every LINE_SECONDS if it changed, else every STANDSTILL_SECONDS.
    """

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._said: dict[str, tuple[float, str]] = {}

    def __enter__(self) -> "LineDisplay":
        return self

    def __exit__(self, *details: Any) -> None:
        pass

    def update(self, view: View) -> None:
        """Print what has changed."""
        if not self._states:
            self.note(header(view))
        for cell in view.cells:
            name, now = cell.cell.spec.run_id, time.monotonic()
            changed = self._states.get(name, "planned") != cell.state
            first = name not in self._states
            self._states[name] = cell.state
            if changed and not (first and cell.state == "done"):
                self.note(f"{name}: {cell.state}{f' ({cell.error})' if cell.error else ''}{_done_of(view, cell)}")
                self._said[name] = now, ""
            elif cell.state == "running":
                at, before = self._said.get(name, (now, ""))
                shown = details(cell)
                if now - at >= (STANDSTILL_SECONDS if shown == before else LINE_SECONDS):
                    self.note(f"{name}: {shown}")
                    self._said[name] = now, shown

    def note(self, text: str) -> None:
        """Print a message on stderr, after the time of day."""
        talk(f"{time.strftime('%H:%M:%S')} {text}")


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
    start = said = time.monotonic()
    done = 0

    def advance() -> None:
        nonlocal done, said
        done, now = done + 1, time.monotonic()
        if now - said >= LINE_SECONDS and done < total:
            said = now
            left = duration((now - start) * (total - done) / done)
            talk(f"{title}: {done} of {total} {unit}, about {left} left")

    yield advance
    talk(f"{title}: {done} of {total} {unit}, {duration(time.monotonic() - start)}")


def header(view: View) -> str:
    """The plan in one line."""
    done = sum(cell.state == "done" for cell in view.cells)
    left = "stopping" if view.stopping else f"about {duration(view.seconds_left)} left"
    return f"{view.suite}: {done} of {len(view.cells)} runs done, {duration(view.elapsed)} elapsed, {left}"


def details(cell: RunView) -> str:
    """A running cell's phase, metrics and time left."""
    left = cell.progress.seconds_left
    return ", ".join(_activity(cell) + ([] if left is None else [f"{duration(left)} left"]))


def _activity(cell: RunView) -> list[str]:
    """A running cell's phase and metrics."""
    progress = cell.progress
    parts = [progress.phase]
    parts += [f"{name} {progress.metrics[key]:.3f}" for name, key in LIVE_METRICS.items() if key in progress.metrics]
    if progress.pass_at_1 is not None:
        parts.append(f"eval pass@1 {progress.pass_at_1:.3f}")
    return parts


def _failures(view: View) -> list[Text]:
    return [
        Text(f"{cell.cell.spec.run_id}: {cell.state}: {cell.error}", style=STYLES[cell.state])
        for cell in view.cells
        if cell.error
    ]


def _done_of(view: View, cell: RunView) -> str:
    done = sum(other.state == "done" for other in view.cells)
    return f" ({done} of {len(view.cells)})" if cell.state == "done" else ""
