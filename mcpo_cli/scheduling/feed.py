"""Keeps the store up to date beside a running plan, in a thread of its own: a store that hangs stops nothing."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from mcpo_cli.config.plan import Plan
from mcpo_cli.store.address import resolve

if TYPE_CHECKING:
    from mcpo_cli.store.mlflow import Store

EVERY_SECONDS = 2.0
LAST_SECONDS = 60.0
"""How long the last ingest, after the last run, may take."""


@contextmanager
def feeding(plan: Plan, note: Callable[[str], None]) -> Iterator[None]:
    """Ingest the plan's journals while the block runs, and once more when it ends.

    Trouble with the store is noted once and once more at the end, never raised.

    Raises:
        ConfigError: at the start, when the store cannot be reached.
    """
    uri = resolve(plan.cells[0].spec.compute.tracking_uri)
    if uri is None:
        yield
        return
    # Here, because it takes seconds.
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
    """The thread. failed: the newest ingest did not succeed."""

    def __init__(self, store: "Store", plan: Plan, note: Callable[[str], None]) -> None:
        super().__init__(daemon=True)
        self.store, self.plan, self.note = store, plan, note
        self.failed = False
        self._told = False
        self._end = threading.Event()

    def run(self) -> None:
        """Ingest every few seconds until `close`, and then a last time."""
        while not self._end.wait(EVERY_SECONDS):
            self._ingest()
        self._ingest()

    def close(self) -> None:
        """Wait for the last ingest."""
        self._end.set()
        self.join(LAST_SECONDS)
        if self.failed or self.is_alive():
            self.note(
                "the MLflow store lacks part of this; the journals have all of it. `mcpo runs sync` brings it over"
            )
        elif len(self.plan.cells) > 1:
            opened = "" if self.store.is_server else " (opened by mcpo ui)"
            self.note(f"compare the arms{opened}:\n{self.store.link(self.plan)}")

    def _ingest(self) -> None:
        try:
            self.store.ingest(self.plan)
            self.failed = False
        except Exception as error:  # whatever the store does wrong, training goes on
            self.failed = True
            if not self._told:
                self._told = True
                self.note(f"warning: {error}; training goes on, and the journals keep everything")
