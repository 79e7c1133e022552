"""The progress of a run, read cheaply from the end of its newest attempt while another process writes it."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mcpo_cli.config.plan import PlannedRun
from mcpo_cli.errors import RunFailed
from mcpo_cli.records import State
from mcpo_cli.runs import sanity
from mcpo_cli.runs.attempts import newest_step
from mcpo_cli.runs.journal import Journal, NewSteps, read_json, read_lines


@dataclass(frozen=True)
class Progress:
    """The progress of one run."""

    step: int = 0
    """Last recorded global step."""
    phase: str = "starting"
    """The run's current activity, in words."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The metrics of `step`."""
    pass_at_1: float | None = None
    """Mean accuracy over all problems of the newest evaluation; None before the first."""


@dataclass(frozen=True)
class RunView:
    """The state of one run, for a display."""

    planned: PlannedRun
    state: State
    progress: Progress
    error: str | None = None
    seconds_left: float | None = None
    """None if this scheduler does not train the run, or once it has ended."""


@dataclass(frozen=True)
class View:
    """The state of a plan, for a display. Times are in seconds."""

    suite: str
    runs: Sequence[RunView]
    elapsed: float
    seconds_left: float
    stopping: bool


class Tracker:
    """Follows one run; each reading costs two small files."""

    def __init__(self, run_dir: Path) -> None:
        self._journal = Journal(run_dir)
        self._eval: tuple[Path, float] | None = None
        self._steps = NewSteps(self._journal, after=0)
        self._said = set[str]()

    def read(self) -> Progress:
        """The run's current progress; damaged files are shown as a phase, not raised."""
        try:
            return self._read()
        except RunFailed:
            return Progress(phase="damaged records")

    def _read(self) -> Progress:
        attempts = self._journal.attempts()
        if not attempts:
            return Progress()
        status = read_json(attempts[-1] / "status.json")
        row, step = newest_step(attempts[-1])
        return Progress(
            step=step,
            # While a resuming worker loads its libraries, the last attempt is still the previous one.
            phase={"running": status.get("phase", "starting"), "done": "ending"}.get(status["state"], "starting"),
            metrics=row["metrics"] if row else {},
            pass_at_1=self._pass_at_1(attempts[-1]),
        )

    def messages(self) -> list[str]:
        """The limits that steps since the last call exceed, and notes of the newest attempt, each once."""
        texts = dict[str, str]()
        # Other readers, which need the numbers, report a damaged line.
        with suppress(RunFailed):
            rows = self._steps.read(math.inf)
            texts |= {warned["metric"]: f"warning: {sanity.line(warned)}" for warned in sanity.warnings(rows)}
        for attempt in self._journal.attempts()[-1:]:
            with suppress(RunFailed):
                notes = read_json(attempt / "status.json").get("notes", [])
                texts |= {text: text for text in (f"{attempt.name} {note}" for note in notes)}
        new = texts.keys() - self._said
        self._said |= new
        return [text for key, text in texts.items() if key in new]

    def _pass_at_1(self, attempt: Path) -> float | None:
        path = max((attempt / "eval").glob("step_*.jsonl"), default=None)
        if path is None:
            return None
        if self._eval is None or self._eval[0] != path:
            self._eval = (path, sanity.accuracy(read_lines(path)))
        return self._eval[1]


def final_metrics(run_dir: Path) -> dict[str, float]:
    """The metrics of the last step and of the last evaluation."""
    journal = Journal(run_dir)
    steps, evaluations = journal.steps(), list(journal.files("eval").values())
    metrics = dict(steps[-1]["metrics"]) if steps else {}
    return metrics | sanity.evaluated(row for path in evaluations[-1:] for row in journal.read(path))
