"""Keeps the store up to date while a plan runs, in a separate thread, so that a hanging store blocks no training."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mcpo_cli import extras
from mcpo_cli.config.plan import Plan
from mcpo_cli.machine import freeze_gc
from mcpo_cli.trackers import OFFLINE, named, resolve

if TYPE_CHECKING:
    from mcpo_cli.trackers.mlflow import Store

EVERY_SECONDS = 2.0
LAST_SECONDS, STOPPED_SECONDS = 60.0, 2.0
"""Time limits of the final ingest: after the last run, and after a request to stop."""


@contextmanager
def uploading(plan: Plan, note: Callable[[str], None], stopped: Callable[[], bool]) -> Iterator[None]:
    """Ingest the plan's journals while the block runs, and once more when it ends.

    Store errors are never raised; `note` reports the first, and at the end whether data is missing. stopped: whether
    the user wants to leave.

    Raises:
        ConfigError: the store cannot be reached at the start.
    """
    setting = plan.cells[0].spec.compute.tracking_uri
    uri = resolve(setting)
    if uri is None:
        yield
        if named(setting) != OFFLINE:
            note(f"for charts: {extras.command('mlflow')}, then mcpo runs sync and mcpo ui")
        return
        return
    # Imported here because importing mlflow takes seconds.
    with freeze_gc():
        from mcpo_cli.trackers.mlflow import Store

    store = Store(uri)
    store.check()
    uploader = _Uploader(store, plan, note)
    uploader.start()
    try:
        yield
    finally:
        uploader.close(STOPPED_SECONDS if stopped() else LAST_SECONDS)


class _Uploader(threading.Thread):
    """The ingesting thread."""

    def __init__(self, store: "Store", plan: Plan, note: Callable[[str], None]) -> None:
        super().__init__(daemon=True)
        self.store, self.plan, self.note = store, plan, note
        self.failed = False
        """True if the newest ingest failed or left runs out."""
        self._warned: set[str] = set()
        self._end = threading.Event()

    def run(self) -> None:
        """Ingest every few seconds until `close`, then once more."""
        while not self._end.wait(EVERY_SECONDS):
            self._ingest(is_running=True)
        self._ingest(is_running=False)

    def close(self, limit: float) -> None:
        """Wait at most `limit` seconds for the final ingest and report the result."""
        self._end.set()
        self.join(limit)
        if self.failed or self.is_alive():
            self.note("the MLflow store is incomplete; the journals hold everything. `mcpo runs sync` uploads the rest")
        elif len(self.plan.cells) > 1:
            opened = "" if self.store.is_server else " (opened by mcpo ui)"
            self.note(f"charts of these runs{opened}:\n{self.store.link(self.plan)}")

    def _ingest(self, *, is_running: bool) -> None:
        try:
            self.store.ingest(self.plan, is_running=is_running)
            self.failed = bool(self.store.left)
            for reason in self.store.left.values():
                self._warn(reason, f"warning: {reason}")
        except Exception as error:  # training must survive any store error
            self.failed = True
            self._warn("store", f"warning: {error}; training continues, and the journals keep everything")

    def _warn(self, key: str, text: str) -> None:
        """Note `text` once per key, because an unreachable store would repeat it."""
        if key not in self._warned:
            self._warned.add(key)
            self.note(text)
