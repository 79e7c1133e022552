"""Logs tables, figures and the report to MLflow; a failing store only causes a warning, because the files remain."""

from collections.abc import Sequence
from pathlib import Path

from mcpo_cli.analysis.artifacts import Built
from mcpo_cli.commands import console
from mcpo_cli.config.plan import Plan
from mcpo_cli.errors import McpoError
from mcpo_cli.store.address import resolve


def publish(built: Sequence[tuple[Plan, Sequence[Built]]], report: Sequence[Path] = ()) -> None:
    """Log the artifacts of each plan, with the report, to its parent run in the store that the first plan names.

    The headline differences of comparisons become metrics of that run.
    """
    uri = resolve(next((plan.cells[0].spec.compute.tracking_uri for plan, _ in built), ""))
    if uri is None or not built:
        return
    # Imported here because it takes seconds.
    from mcpo_cli.store.reports import Reports

    try:
        store = Reports(uri)
        store.check()
        for plan, here in built:
            files = [path for one in here for path in (*one.paths, one.folder / f"{one.name}.json")]
            headlines = {name: value for one in here for name, value in _headlines(one).items()}
            store.log(plan, [*report, *files], headlines)
    except McpoError as error:
        console.talk(f"warning: {error}")


def _headlines(built: Built) -> dict[str, float]:
    """A comparison's headline differences, and their adjusted p, by `difference/<metric>/<equal>/<model>/<arm>`."""
    values = {}
    for row in built.to_json()["rows"]:
        if row.get("family") == "headline":
            place = "/".join(row[name] for name in ("metric", "at", "model", "arm"))
            values[f"difference/{place}"] = row["mean"]
            if row["p_holm"] is not None:
                values[f"p_holm/{place}"] = row["p_holm"]
    return values
