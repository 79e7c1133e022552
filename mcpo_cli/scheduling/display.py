"""Shows a plan while it runs, on stderr: redrawn in place on a terminal, else in lines."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from mcpo_cli.redaction import visible

if TYPE_CHECKING:
    from mcpo_cli.scheduling.progress import RunView, View

LINE_SECONDS = 5.0
"""Least seconds between two progress lines about the same run."""
STANDSTILL_SECONDS = 60.0
"""Least seconds between two progress lines that differ in the time left only."""
BAR_WIDTH = 10
"""Columns of the bar of a run in progress."""
LIVE_METRICS = {"accuracy": "train/accuracy", "mastered": "mastery/mastered"}
STYLES = {"failed": "red", "interrupted": "yellow"}


class Display(Protocol):
    """Shows a plan while it runs."""

    def update(self, view: View) -> None:
        """Show the plan's current state; called several times a second."""

    def note(self, text: str) -> None:
        """Print a message once."""


def talk(text: str) -> None:
    """Print a message on stderr."""
    sys.stderr.write(visible(text) + "\n")
    sys.stderr.flush()


def duration(seconds: float) -> str:
    """`1:02:03`, or `2:03` below an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def display() -> LiveDisplay | LineDisplay:
    """A live display on a terminal, else lines."""
    console = Console(stderr=True, highlight=False)
    is_live = console.is_terminal and not console.is_dumb_terminal
    return LiveDisplay(console) if is_live else LineDisplay()


class LiveDisplay:
    """The plan and one row per run in progress, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: AbstractContextManager[Any] = nullcontext()

    def __enter__(self) -> LiveDisplay:
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
        """One row per run in progress; if space is short, its details are cut first."""
        column = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        table = Table.grid(Column(no_wrap=True), Column(no_wrap=True, justify="right"), Column(), column, expand=True)
        table.padding = (0, 1, 0, 0)
        for run in (run for run in view.runs if run.state == "running"):
            bar = ProgressBar(total=run.planned.spec.train.steps, completed=run.progress.step, width=BAR_WIDTH)
            table.add_row(label(run), _left(run), bar, ", ".join([*_activity(run), run.planned.spec.run_id]))
        return table


class LineDisplay:
    """Lines on stderr: every change of state, and each run's progress.

    Progress is printed every LINE_SECONDS if it changed, else every STANDSTILL_SECONDS.
    """

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._printed: dict[str, tuple[float, str]] = {}
        """By run id: the time of its last line, and the progress that it showed; the time left changes always."""

    def __enter__(self) -> LineDisplay:
        return self

    def __exit__(self, *details: Any) -> None:
        pass

    def update(self, view: View) -> None:
        """Print what has changed."""
        if not self._states:
            self.note(header(view))
        for run in view.runs:
            name, now = run.planned.spec.run_id, time.monotonic()
            changed = self._states.get(name, "planned") != run.state
            first = name not in self._states
            self._states[name] = run.state
            if changed and not (first and run.state == "done"):
                error = f" ({run.error})" if run.error else ""
                self.note(f"{label(run)}: {run.state}{error}{_done_of(view, run)}, {name}")
                self._printed[name] = now, ""
            elif run.state == "running":
                at, before = self._printed.get(name, (now, ""))
                activity = ", ".join(_activity(run))
                if now - at >= (STANDSTILL_SECONDS if activity == before else LINE_SECONDS):
                    self.note(f"{label(run)}: {details(run)}, {name}")
                    self._printed[name] = now, activity

    def note(self, text: str) -> None:
        """Print a message on stderr, after the time of day."""
        talk(f"{time.strftime('%H:%M:%S')} {text}")


def header(view: View) -> str:
    """The plan in one line."""
    done = sum(run.state == "done" for run in view.runs)
    left = "stopping" if view.stopping else f"about {duration(view.seconds_left)} left"
    return f"{view.suite}: {done} of {len(view.runs)} runs done, {duration(view.elapsed)} elapsed, {left}"


def label(run: RunView) -> str:
    """A run as people tell it from others of its plan: `MCPO, toy-s, seed 1`."""
    spec = run.planned.spec
    return f"{run.planned.arm or spec.method.name}, {spec.model.name}, seed {spec.seed}"


def details(run: RunView) -> str:
    """Its metrics, time left and phase."""
    return ", ".join(part for part in (*_activity(run), _left(run)) if part)


def _left(run: RunView) -> str:
    return "" if run.seconds_left is None else f"{duration(run.seconds_left)} left"


def _activity(run: RunView) -> list[str]:
    """Its metrics and phase; what matters most comes first, because a narrow terminal cuts the end."""
    progress = run.progress
    reward = {} if run.planned.spec.train.reward == "verdict" else {"reward": "train/reward"}
    live = {**reward, **LIVE_METRICS}
    parts = [f"{name} {progress.metrics[key]:.3f}" for name, key in live.items() if key in progress.metrics]
    if progress.pass_at_1 is not None:
        parts.insert(0, f"eval pass@1 {progress.pass_at_1:.3f}")
    return [progress.phase, *parts] if not progress.metrics else [*parts[:2], progress.phase, *parts[2:]]


def _failures(view: View) -> list[Text]:
    return [
        Text(f"{label(run)}: {run.state}: {run.error}, {run.planned.spec.run_id}", style=STYLES.get(run.state, ""))
        for run in view.runs
        if run.error
    ]


def _done_of(view: View, run: RunView) -> str:
    done = sum(other.state == "done" for other in view.runs)
    return f" ({done} of {len(view.runs)})" if run.state == "done" else ""
