"""Logs tables, figures and the report to MLflow; a failing store only causes a warning, because the files remain."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mcpo_cli.analysis import render
from mcpo_cli.analysis.artifacts import Built
from mcpo_cli.commands import console
from mcpo_cli.config import load
from mcpo_cli.config.plan import Plan
from mcpo_cli.errors import McpoError
from mcpo_cli.machine import lasting
from mcpo_cli.store.address import resolve


def publish(built: Sequence[tuple[Plan, Sequence[Built]]], report: Sequence[Path] = ()) -> None:
    """Log the artifacts of each plan, with the report, to its parent run in the store that the first plan names.

    The headline differences of comparisons become metrics of that run.
    """
    uri = resolve(next((plan.cells[0].spec.compute.tracking_uri for plan, _ in built), ""))
    if uri is None or not built:
        return
    # Imported here because it takes seconds.
    with lasting():
        from mcpo_cli.store.reports import Reports

    try:
        store = Reports(uri)
        store.check()
        for plan, here in built:
            files = [path for one in here for path in (*one.paths, one.folder / f"{one.name}.json")]
            headlines = {name: value for one in here for name, value in _headlines(one).items()}
            table = next((one for one in here if one.name == load.stem(plan.suite) and one.grids), None)
            store.log(plan, [*report, *files], headlines, _results(table) if table else "")
    except McpoError as error:
        console.talk(f"warning: {error}")


def _headlines(built: Built) -> dict[str, float]:
    """A comparison's numbers with the ends of their intervals, `.../low` and `.../high`, as far as they are known.

    Headline differences and their adjusted p are called `difference/<metric>/<equal>/<model>/<arm>` and `p_holm/...`,
    means over tiers and seeds `average/<metric>/<model>/<arm>`.
    """
    values: dict[str, float | None] = {}
    for row in built.to_json()["rows"]:
        if row.get("family") == "headline":
            place = "/".join(row[name] for name in ("metric", "at", "model", "arm"))
            values |= _with_interval(f"difference/{place}", row) | {f"p_holm/{place}": row["p_holm"]}
        elif (row.get("block"), row.get("tier"), row.get("at")) == ("measured", "average", "steps"):
            values |= _with_interval(f"average/{row['metric']}/{row['model']}/{row['arm']}", row)
    return {name: value for name, value in values.items() if value is not None}


def _with_interval(name: str, row: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: row["mean"], f"{name}/low": row["low"], f"{name}/high": row["high"]}


def _results(table: Built) -> str:
    """A comparison's sentence and first table as Markdown."""
    return f"{render.escaped(table.page.sentence)}\n\n{render.pipes(table.grids[0])}"
