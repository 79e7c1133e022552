"""Follows the journals of runs while they train, for every tracker: one thread each, so that none delays a step.

MLflow gets all runs of a plan, from the scheduler's process; `mcpo runs sync` sends it what it missed. The trackers of
`cluster.loggers` get one attempt each, from its worker's process, whatever the backend.
"""

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Protocol

from mcpo_cli import extras
from mcpo_cli.config.plan import Plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.machine import freeze_gc
from mcpo_cli.redaction import redact
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import Journal
from mcpo_cli.trackers import OFFLINE, named, resolve
from mcpo_cli.trackers.rows import Rows

EVERY_SECONDS = 2.0
LAST_SECONDS, STOPPED_SECONDS = 60.0, 2.0
"""Time limits of the last sending: at the end of the work, and after a request to stop."""


class TrackedRun(Protocol):
    """A run of a tracker, as its module's `begin(spec, folder)` makes it; W&B's and trackio's own runs are such."""

    def log(self, metrics: dict[str, float], step: int) -> None:
        """Send the metrics of one global step; steps never decrease."""

    def finish(self) -> None:
        """Send the remaining rows, and end the run."""


class Follower(threading.Thread):
    """Sends what is new every few seconds. A daemon: a tracker that hangs does not keep the process.

    Args:
        tracker: its name, for messages.
        send: sends what is new, and returns what it could not send; called with whether the work goes on.
        note: gets every error once.
        retries: whether `send` may be called again after an error.
    """

    def __init__(
        self, tracker: str, send: Callable[[bool], Collection[str]], note: Callable[[str], None], *, retries: bool
    ) -> None:
        super().__init__(daemon=True)
        self._tracker, self._send, self._note, self._retries = tracker, send, note, retries
        self._failed = False
        """True if the last call failed or left something out."""
        self._noted = set[str]()
        self._end = threading.Event()

    def run(self) -> None:
        """Send until `close`, then once more."""
        while not self._end.wait(EVERY_SECONDS):
            self._try(is_running=True)
        self._try(is_running=False)

    def close(self, limit: float, fix: str = "") -> bool:
        """Wait at most `limit` seconds for the last sending; False, with a note, if something is missing."""
        self._end.set()
        self.join(limit)
        if self._failed or self.is_alive():
            self._note(f"{self._tracker} is incomplete; the journals hold everything{fix}")
            return False
        return True

    def _try(self, *, is_running: bool) -> None:
        if self._failed and not self._retries:
            return
        try:
            left = self._send(is_running)
            self._failed = bool(left)
            for reason in left:
                self._warn(reason, reason)
        except Exception as error:  # training must survive any error of a tracker
            self._failed = True
            text = " ".join(redact(str(error) or type(error).__name__).split())
            self._warn("", f"{self._tracker}: {text}; training continues, and the journals keep everything")

    def _warn(self, key: str, text: str) -> None:
        """Note `text` once per key, because an unreachable server would repeat it."""
        if key not in self._noted:
            self._noted.add(key)
            self._note(f"warning: {text}")


@contextmanager
def following_plan(plan: Plan, note: Callable[[str], None], stopped: Callable[[], bool]) -> Iterator[None]:
    """Keep MLflow up to date with the plan's runs while the block runs.

    note: gets errors of MLflow, which are never raised, and the address of the charts. stopped: whether the user wants
    to leave.

    Raises:
        ConfigError: the store cannot be reached at the start.
    """
    setting = plan.runs[0].spec.compute.tracking_uri
    uri = resolve(setting)
    if uri is None:
        yield
        if named(setting) != OFFLINE:
            note(f"for charts: {extras.command('mlflow')}, then mcpo runs sync and mcpo ui")
        return
    # Imported here because importing mlflow takes seconds.
    with freeze_gc():
        from mcpo_cli.trackers.mlflow import Store

    store = Store(uri)
    store.check()

    def send(is_running: bool) -> Collection[str]:
        store.ingest(plan, is_running=is_running)
        return store.left.values()

    follower = Follower("the MLflow store", send, note, retries=True)
    follower.start()
    try:
        yield
    finally:
        complete = follower.close(STOPPED_SECONDS if stopped() else LAST_SECONDS, ". `mcpo runs sync` uploads the rest")
        if complete and len(plan.runs) > 1:
            note(f"charts of these runs: {store.link(plan)}")


@contextmanager
def following_attempt(spec: RunSpec, attempt: Attempt) -> Iterator[None]:
    """Send an attempt's rows to the trackers of `cluster.loggers` while the block runs; errors become its notes.

    Each attempt is a separate run there, so rows that the next attempt may replace are sent, too.
    """
    with ExitStack() as stack:
        for tracker in spec.cluster.loggers:
            sender = _Sender(tracker, spec, attempt)
            follower = Follower(tracker, sender.send, attempt.note, retries=False)
            follower.start()
            stack.callback(follower.close, LAST_SECONDS)
        yield


class _Sender:
    """Sends one attempt to one tracker."""

    def __init__(self, tracker: str, spec: RunSpec, attempt: Attempt) -> None:
        self._tracker, self._spec, self._folder = tracker, spec, attempt.folder
        start = int(attempt.status["start_step"])
        # The evaluation of the step it begins at is in the attempt before.
        self._rows = Rows(Journal(attempt.folder.parent), start, start or -1, live=True)
        self._run: TrackedRun | None = None

    def send(self, is_running: bool) -> Collection[str]:
        """See `Follower`."""
        if self._run is None:
            run: TrackedRun = import_module(f"mcpo_cli.trackers.{self._tracker}").begin(self._spec, self._folder)
            self._run = run
        for row in self._rows.new():
            self._run.log(dict(row.metrics), step=row.step)
        if not is_running:
            self._run.finish()
        return ()
