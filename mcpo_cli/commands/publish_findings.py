"""Logs a probe's values to MLflow; a failing store only causes a warning, because the records have everything."""

from collections.abc import Sequence
from typing import Any

from mcpo_cli.commands import console
from mcpo_cli.errors import McpoError
from mcpo_cli.probes.base import Probe
from mcpo_cli.probes.study import Measured
from mcpo_cli.store.address import resolve


def publish(probe: Probe, measured: Sequence[Measured], document: dict[str, Any]) -> None:
    """Log the values to the runs in the store, and the document to their parents."""
    uri = resolve(measured[0].cell.spec.compute.tracking_uri)
    if uri is None:
        return
    # Imported here because it takes seconds.
    from mcpo_cli.store.findings import Findings

    try:
        store = Findings(uri)
        store.check()
        findings = {one.cell.spec.run_id: one.finding.values for one in measured}
        if unknown := store.log(probe.name, findings, document):
            console.talk(f"not in the MLflow store: {', '.join(unknown)}; to copy runs there: mcpo runs sync")
    except McpoError as error:
        console.talk(f"warning: {error}")
