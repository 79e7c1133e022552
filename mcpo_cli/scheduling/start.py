"""Trains the runs of a plan and follows them with a progress display; every verb that trains calls this."""

from collections.abc import Callable

from mcpo_cli.config.plan import Plan
from mcpo_cli.scheduling import display, scheduler
from mcpo_cli.scheduling.display import Display, talk
from mcpo_cli.scheduling.forecast import forecast
from mcpo_cli.scheduling.outcome import RunOutcome
from mcpo_cli.scheduling.progress import RunView, View

Callback = Callable[[RunView], None] | None


def train(plan: Plan, on_step: Callback = None, on_end: Callback = None) -> list[RunOutcome]:
    """Train the runs of `plan` that are not done, with progress and callbacks; see `scheduler.run` for errors."""
    expected = forecast(plan)
    for caution in expected.cautions:
        talk(f"warning: {caution}")
    with display.display() as screen:
        return scheduler.run(expected, _Calling(screen, on_step, on_end))


class _Calling:
    """A display that also calls functions when a run has done a step or has ended."""

    def __init__(self, screen: Display, on_step: Callback, on_end: Callback) -> None:
        self._shown, self._on_step, self._on_end = screen, on_step, on_end
        self._seen: dict[str, tuple[int, str]] = {}

    def update(self, view: View) -> None:
        """See `Display`."""
        self._shown.update(view)
        for run in view.runs:
            key, now = run.planned.spec.run_id, (run.progress.step, run.state)
            before = self._seen.setdefault(key, now)
            self._seen[key] = now
            if self._on_step and now[0] > before[0]:
                self._on_step(run)
            if self._on_end and run.state != before[1] and run.state not in ("planned", "running"):
                self._on_end(run)

    def note(self, text: str) -> None:
        """See `Display`."""
        self._shown.note(text)
