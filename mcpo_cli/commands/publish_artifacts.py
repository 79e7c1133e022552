"""Tables, figures and the report, brought to MLflow; trouble there is said and nothing is lost: the files stay."""

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
    # Here, because it takes seconds.
    from mcpo_cli.store.reports import Reports

    try:
        store = Reports(uri)
        store.check()
        for suite, its in files.items():
            store.log(plans[suite], its)
    except McpoError as error:
        console.talk(f"warning: {error}")
