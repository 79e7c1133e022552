"""Logs tables, figures and the report to MLflow; a failing store only causes a warning, because the files remain."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from mcpo_cli.commands import console
from mcpo_cli.config.plan import Plan
from mcpo_cli.errors import McpoError
from mcpo_cli.store.address import resolve


def publish(plans: Mapping[str, Plan], files: Mapping[str, Sequence[Path]]) -> None:
    """Log the files of each suite to its parent run, in the store that its plan names."""
    uri = resolve(next((plan.cells[0].spec.compute.tracking_uri for plan in plans.values()), ""))
    if uri is None or not files:
        return
    # Imported here because it takes seconds.
    from mcpo_cli.store.reports import Reports

    try:
        store = Reports(uri)
        store.check()
        for suite, paths in files.items():
            store.log(plans[suite], paths)
    except McpoError as error:
        console.talk(f"warning: {error}")
