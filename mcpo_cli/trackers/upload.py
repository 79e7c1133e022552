"""Sends results to the MLflow store that a setting names, if it names one.

A failing store only causes a warning, because the disk has all files and records.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mcpo_cli.errors import McpoError
from mcpo_cli.trackers import resolve

if TYPE_CHECKING:
    from mcpo_cli.trackers.mlflow import Store


def connected(uri: str) -> "Store":
    """The store at `uri`, which answers.

    Raises:
        StoreError: it does not.
    """
    # Imported here because importing mlflow takes seconds. Not under `freeze_gc`, which would keep the objects of an
    # engine in the same process from being freed at its end.
    from mcpo_cli.trackers.mlflow import Store

    store = Store(uri)
    store.check()
    return store


def upload(setting: str, send: "Callable[[Store], object]", warn: Callable[[str], None]) -> None:
    """Call `send` with the store that `setting` (`compute.tracking_uri`) names; without one, do nothing.

    warn: gets the sentence about an error of the store or of `send`.

    Raises:
        ConfigError: the setting cannot be used, see `resolve`.
    """
    uri = resolve(setting)
    if uri is None:
        return
    try:
        send(connected(uri))
    except McpoError as error:
        warn(f"warning: {error}")


def upload_probe(
    setting: str, probe: str, values: Mapping[str, Mapping[str, float]], document: Any, talk: Callable[[str], None]
) -> None:
    """Log a probe's values to the runs in the store, by run id, and its document to their parents."""

    def send(store: "Store") -> None:
        from mcpo_cli.trackers.results import log_probe

        if unknown_ids := log_probe(store, probe, values, document):
            talk(f"not in the MLflow store: {', '.join(unknown_ids)}; to copy runs there: mcpo runs sync")

    upload(setting, send, talk)
