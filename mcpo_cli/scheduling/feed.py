"""Keeps the store up to date while a plan runs, in a separate thread, so that a hanging store blocks no training."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from mcpo_cli.config.plan import Plan
from mcpo_cli.machine import lasting
from mcpo_cli.store.address import resolve

if TYPE_CHECKING:
    from mcpo_cli.store.mlflow import Store

EVERY_SECONDS = 2.0
LAST_SECONDS = 60.0
"""Time limit of the final ingest, after the last run."""


@contextmanager
def feeding(plan: Plan, note: Callable[[str], None]) -> Iterator[None]:
    """Ingest the plan's journals while the block runs, and once more when it ends.

    Store errors are never raised; `note` reports the first, and at the end whether data is missing.

    Raises:
        ConfigError: the store cannot be reached at the start.
    """
    uri = resolve(plan.cells[0].spec.compute.tracking_uri)
    if uri is None:
        yield
        return
    # Imported here because importing mlflow takes seconds.
    with lasting():
        from mcpo_cli.store.mlflow import Store

    store = Store(uri)
    store.check()
    feed = _Feed(store, plan, note)
    with ExitStack() as stack:
        stack.callback(feed.close)
        stack.enter_context(store.monitor(plan))
        feed.start()
        yield


class _Feed(threading.Thread):
    """The ingesting thread."""

    def __init__(self, store: "Store", plan: Plan, note: Callable[[str], None]) -> None:
        super().__init__(daemon=True)
        self.store, self.plan, self.note = store, plan, note
        self.failed = False
        """Whether the newest ingest failed."""
        self._told = False
        self._warned: set[str] = set()
        self._end = threading.Event()

    def run(self) -> None:
        """Ingest every few seconds until `close`, then once more."""
        while not self._end.wait(EVERY_SECONDS):
            self._ingest()
        self._ingest()

    def close(self) -> None:
        """Wait for the final ingest and report the result."""
        self._end.set()
        self.join(LAST_SECONDS)
        if self.failed or self.is_alive():
            self.note("the MLflow store is incomplete; the journals hold everything. `mcpo runs sync` uploads the rest")
        elif len(self.plan.cells) > 1:
            opened = "" if self.store.is_server else " (opened by mcpo ui)"
            self.note(f"compare the arms{opened}:\n{self.store.link(self.plan)}")

    def _ingest(self) -> None:
        try:
            self.store.ingest(self.plan)
            self.failed = bool(self.store.refused)
            for line in (*self.store.notes, *self.store.foreign_lines(), *self.store.refused.values()):
                if line not in self._warned:
                    self._warned.add(line)
                    self.note(line)
        except Exception as error:  # training must survive any store error
            self.failed = True
            if not self._told:
                self._told = True
                self.note(f"warning: {error}; training continues, and the journals keep everything")
