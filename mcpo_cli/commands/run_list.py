"""`mcpo runs list`: the runs of MCPO_HOME, filtered, sorted and named by their differences."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcpo_cli.commands.completion import completing
from mcpo_cli.commands.reply import Part, Reply, table, verb
from mcpo_cli.home import location

if TYPE_CHECKING:
    from mcpo_cli.runs.catalog import Run
    from mcpo_cli.runs.index import Summary

EXAMPLES = """\
\b
Examples:
  mcpo runs list --where method=mcpo --where train.lr=1e-3
  mcpo runs list --where tag=keep --sort -score    the best first"""
SHARED = ("task", "model", "scale", "regime", "suite")
"""Columns that a table of several runs has only if the runs differ in them."""

Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="KEY=VALUE",
        help="Only runs with this setting, or state=, suite=, tag=NAME; several times: with all of them.",
        autocompletion=completing("setting"),
        show_default=False,
    ),
]
Sort = Annotated[
    str,
    typer.Option(
        metavar="KEY",
        help="By a setting, score, date, state or name (default); -KEY: largest first.",
        autocompletion=completing("setting"),
        show_default=False,
    ),
]


@verb("home, runs (run_id, suite, arm, task, model, seed, state, step, steps, score, ...)")
def list_runs(where: Where = None, sort: Sort = "") -> Reply:
    """List the runs of MCPO_HOME: their arms, named by what differs, settings, scores and dates."""
    from mcpo_cli.commands import console
    from mcpo_cli.runs import catalog

    left_out: dict[str, str] = {}
    runs = catalog.chosen(catalog.runs(location(), left_out.__setitem__), where or [], sort)
    summaries, tags = [run.summary for run in runs], catalog.tags_of(location())
    rows = [
        row(run, summary, arm, tags.get(run.folder.name, []))
        for run, summary, arm in zip(runs, summaries, catalog.arms(summaries), strict=True)
    ]
    if left_out:
        console.talk(catalog.left_out(left_out))
    nothing = (
        f"no run in {location()} has {' and '.join(where)}; all runs: mcpo runs list"
        if where
        else f"no runs in {location()}; start one with: mcpo train scale=smoke"
    )
    page = _page(rows) if rows else [partial(console.talk, nothing)]
    return Reply({"home": str(location()), "runs": rows}, page)


def row(run: "Run", summary: "Summary", arm: str, tags: Sequence[str]) -> dict[str, Any]:
    """The columns of a run."""
    from mcpo_cli.runs import attempts, catalog

    settings = summary.facts
    return {
        "run_id": run.folder.name,
        "suite": run.origin.get("suite", "-"),
        "arm": arm,
        **{key: settings[name] for key, name in catalog.ABOUT.items()},
        **{key: settings[key] for key in ("scale", "regime", "base_seed", "seed")},
        "state": attempts.state_of(run.folder, summary.state),
        "step": summary.step,
        "steps": settings["train.steps"],
        "score": summary.score,
        "date": catalog.when(summary.updated),
        "tags": tags,
    }


def _page(rows: Sequence[dict[str, Any]]) -> Iterator[Part]:
    alike = [key for key in SHARED if len(rows) > 1 and len({row[key] for row in rows}) == 1]
    columns = ["run_id", "arm", *(key for key in SHARED if key not in alike), "seed", "state", "score", "date"]
    tags = ["tags"] if any(row["tags"] for row in rows) else []
    yield table([*columns, *tags], [[_cell(row, key) for key in (*columns, *tags)] for row in rows])
    if alike:
        yield f"all: {', '.join(f'{key} {rows[0][key]}' for key in alike)}"


def _cell(row: dict[str, Any], key: str) -> str:
    if key == "state":
        return row["state"] if row["state"] == "done" else f"{row['state']} {row['step']}/{row['steps']}"
    if key == "score":
        return "-" if row["score"] is None else f"{row['score']:.3f}"
    return ", ".join(row["tags"]) if key == "tags" else str(row[key])
