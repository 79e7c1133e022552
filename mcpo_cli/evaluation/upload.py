"""Copies evaluations to the MLflow store."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mcpo_cli.errors import McpoError
from mcpo_cli.evaluation.gradings import all_of
from mcpo_cli.home import home
from mcpo_cli.trackers import resolve
from mcpo_cli.trackers.upload import connected

if TYPE_CHECKING:
    from mcpo_cli.trackers.mlflow import Store


def uploader(setting: str, note: Callable[[str], None]) -> Callable[[Path], None]:
    """A function that copies the evaluation in a folder to the store that `compute.tracking_uri` names.

    Later errors of the store are passed to `note` and never raised.

    Raises:
        ConfigError: the store cannot be used now.
    """
    uri = resolve(setting)
    if uri is None:
        return lambda _: None
    store = connected(uri)

    def upload(folder: Path) -> None:
        try:
            _send(store, folder)
        except McpoError as error:
            note(f"warning: {error}; the results are in {folder}")

    return upload


def _send(store: "Store", folder: Path) -> int:
    """Copy the gradings of the evaluation in `folder`; returns the number of points sent."""
    from mcpo_cli.trackers.results import log_gradings

    return log_gradings(store, folder, all_of(folder))


def sync(store: "Store") -> dict[str, int]:
    """Copy every evaluation in MCPO_HOME to the store; returns points sent by evaluation id.

    Raises:
        StoreError: the store failed. McpoError: a grading record is damaged.
    """
    folders = sorted(path.parent for path in (home() / "evals").glob("*/gradings"))
    return {folder.name: _send(store, folder) for folder in folders}
