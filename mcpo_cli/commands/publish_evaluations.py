"""Copies evaluations from the disk to the MLflow store; a failing store never loses a result."""

from collections.abc import Callable
from pathlib import Path

from mcpo_cli.errors import McpoError
from mcpo_cli.home import home
from mcpo_cli.store.address import resolve


def publisher(setting: str, note: Callable[[str], None]) -> Callable[[Path], None]:
    """A function that copies the evaluation in a folder to the store that `compute.tracking_uri` names.

    Later errors of the store are passed to `note` and never raised: the folder has everything.

    Raises:
        ConfigError: the store cannot be used now.
    """
    uri = resolve(setting)
    if uri is None:
        return lambda _: None
    # Imported here because they take seconds.
    from mcpo_cli.evaluation.gradings import all_of
    from mcpo_cli.store.evaluations import Evaluations

    store = Evaluations(uri)
    store.check()

    def publish(folder: Path) -> None:
        try:
            store.ingest(folder, all_of(folder))
        except McpoError as error:
            note(f"warning: {error}; the results are in {folder}")

    return publish


def sync(uri: str) -> dict[str, int]:
    """Copy every evaluation in MCPO_HOME to the store at `uri`; returns points sent by evaluation id.

    Raises:
        StoreError: the store failed. McpoError: a grading record is damaged.
    """
    folders = sorted(path.parent for path in (home() / "evals").glob("*/gradings"))
    if not folders:
        return {}
    from mcpo_cli.evaluation.gradings import all_of
    from mcpo_cli.store.evaluations import Evaluations

    store = Evaluations(uri)
    return {folder.name: store.ingest(folder, all_of(folder)) for folder in folders}
