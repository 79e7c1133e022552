"""From the disk to the store, without ever costing a result."""

from collections.abc import Callable
from pathlib import Path

from mcpo_cli.errors import StoreError
from mcpo_cli.store.address import resolve


def publisher(setting: str, note: Callable[[str], None]) -> Callable[[Path], None]:
    """What brings the evaluation in a folder to the store that `compute.tracking_uri` names.

    Trouble with the store after the start is noted, never raised: the folder has everything.

    Raises:
        ConfigError: the store cannot be used now.
    """
    uri = resolve(setting)
    if uri is None:
        return lambda _: None
    # Here, because it takes seconds.
    from mcpo_cli.store.evaluations import Evaluations

    store = Evaluations(uri)
    store.check()

    def publish(folder: Path) -> None:
        try:
            store.ingest(folder)
        except StoreError as error:
            note(f"warning: {error}; the results are in {folder}")

    return publish
