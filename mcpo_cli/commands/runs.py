"""`mcpo runs`: list, show, sync and pull the runs of MCPO_HOME; other verbs about them have files of their own."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcpo_cli.commands.exchange import EXAMPLES, bundle, export, unbundle
from mcpo_cli.commands.samples import samples
from mcpo_cli.commands.verbs import Debug, Json, RunId, complete_methods, complete_suites
from mcpo_cli.records import State

if TYPE_CHECKING:
    from mcpo_cli.runs.catalog import Run

STEP = re.compile(r"step_\d+\.jsonl$")

app = typer.Typer(
    help="List and show runs; copy them to the MLflow store and back, to other tools and to other people.",
    no_args_is_help=True,
)
app.command()(samples)
for verb in (export, bundle, unbundle):
    app.command(epilog=EXAMPLES)(verb)

InState = Annotated[State | None, typer.Option("--state", help="Only runs in this state.")]
OfMethod = Annotated[
    str | None, typer.Option("--method", help="Only runs of this method.", autocompletion=complete_methods)
]
OfSuite = Annotated[
    str | None, typer.Option("--suite", help="Only runs that this suite started.", autocompletion=complete_suites)
]


@app.command("list")
def list_runs(
    state: InState = None, method: OfMethod = None, suite: OfSuite = None, as_json: Json = False, debug: Debug = False
) -> None:
    """List the runs of MCPO_HOME."""
    from mcpo_cli.commands import console
    from mcpo_cli.home import location
    from mcpo_cli.runs import catalog

    wanted = {key: value for key, value in {"state": state, "method": method, "suite": suite}.items() if value}
    rows = [
        row
        for row in map(_row, catalog.runs(location(), console.talk))
        if all(row[key] == value for key, value in wanted.items())
    ]
    if as_json:
        console.print_json({"home": str(location()), "runs": rows})
    elif rows:
        columns = ["run_id", "suite", "arm", "scale", "regime", "state", "step"]
        console.print_table(columns, [[str(row[column]) for column in columns] for row in rows])
    else:
        console.talk(f"no such runs in {location()}; start one with: mcpo train scale=smoke")


@app.command("show")
def show_run(run_id: RunId, as_json: Json = False, debug: Debug = False) -> None:
    """Show one run: settings, attempts, newest metrics, files."""
    from mcpo_cli.commands import console
    from mcpo_cli.home import location
    from mcpo_cli.runs import catalog, sanity
    from mcpo_cli.runs.journal import Journal, read_json
    from mcpo_cli.scheduling.progress import final_metrics

    run = catalog.find(location(), run_id)
    journal = Journal(run.folder)
    attempts = [{"attempt": path.name, **read_json(path / "status.json")} for path in journal.attempts()]
    document = {
        **_row(run),
        "command": run.origin.get("command"),
        "folder": str(run.folder),
        "spec": run.spec.to_dict(),
        "attempts": attempts,
        "warnings": sanity.warnings(journal.steps()),
        "metrics": final_metrics(run.folder),
        "files": _files(run.folder),
    }
    if as_json:
        console.print_json(document)
    else:
        console.print_text(_text(document))


@app.command("sync")
def sync_runs(as_json: Json = False, debug: Debug = False) -> None:
    """Copy all journals and evaluations of MCPO_HOME to the MLflow store. Rerunning sends no point twice."""
    from mcpo_cli.commands import console, publish_evaluations
    from mcpo_cli.errors import RunFailed, StoreError
    from mcpo_cli.machine import lasting

    with lasting():
        from mcpo_cli.store.mlflow import Store

    uri = _store()
    store = Store(uri)
    store.check()
    points = store.sync(console.progress) | publish_evaluations.sync(uri)
    document = {"store": store.shown, "points": points, "repaired": store.notes, "elsewhere": store.elsewhere}
    for note in (*store.notes, *store.foreign_lines()):
        console.talk(note)
    if store.damaged:
        head = f"{len(store.damaged)} runs are damaged; their data in the store is unchanged"
        message = "\n  ".join([f"{head}:", *store.damaged.values()])
        fix = "remove each folder, then run: mcpo runs pull, or the command that trained the run"
        raise RunFailed(message, fix=fix, data=document)
    if store.refused:
        head = f"the store does not take {len(store.refused)} of {len(points) + len(store.refused)} runs"
        message = "\n  ".join([f"{head}; the others are there:", *store.refused.values()])
        fix = "delete these runs in mcpo ui: the next mcpo runs sync makes them anew"
        raise StoreError(message, fix=fix, data=document)
    if as_json:
        console.print_json(document)
    else:
        sent = f"{sum(points.values())} points of {len(points)} runs and evaluations"
        console.print_text(f"{sent} copied to {store.shown}")


@app.command("pull")
def pull_runs(suite: OfSuite = None, as_json: Json = False, debug: Debug = False) -> None:
    """Copy completed runs that MCPO_HOME lacks from the MLflow store: journals only, no weights."""
    from mcpo_cli.commands import console
    from mcpo_cli.store.pulls import Pulls

    store = Pulls(_store())
    store.check()
    pulled, left = store.pull(suite)
    for run_id, reason in left.items():
        console.talk(f"{run_id} stays in the store: {reason}")
    if as_json:
        console.print_json({"store": store.shown, "pulled": pulled, "left": left})
    else:
        console.print_text("\n".join([*pulled, f"{len(pulled)} runs copied from {store.shown}"]))


def _store() -> str:
    """The address of the store that the environment names."""
    from mcpo_cli.errors import ConfigError
    from mcpo_cli.store.address import resolve

    uri = resolve("")
    if uri is None:
        raise ConfigError("MLFLOW_TRACKING_URI=offline names no store", fix="unset MLFLOW_TRACKING_URI")
    return uri


def _row(run: "Run") -> dict[str, Any]:
    from mcpo_cli.scheduling.progress import Tracker

    spec = run.spec
    return {
        "run_id": spec.run_id,
        "suite": run.origin.get("suite", "-"),
        "arm": run.origin.get("arm", "-"),
        **spec.about,
        "state": run.state,
        "step": Tracker(run.folder, spec).read().step,
        "steps": spec.train.steps,
    }


def _files(folder: Path) -> list[str]:
    """Relative paths of the files below `folder`; the files of all steps share one line."""
    steps: dict[str, int] = {}
    for path in sorted(path for path in folder.glob("**/*") if path.is_file()):
        name = STEP.sub("step_*.jsonl", path.relative_to(folder).as_posix())
        steps[name] = steps.get(name, 0) + 1
    return [f"{name} ({count})" if name.endswith("step_*.jsonl") else name for name, count in steps.items()]


def _text(document: dict[str, Any]) -> str:
    from mcpo_cli.commands.console import duration
    from mcpo_cli.runs.sanity import line

    lines = [
        f"{document['run_id']}  {document['state']}, step {document['step']} of {document['steps']}",
        f"  {'suite':<9}{document['suite']} ({document['arm']})",
        f"  {'folder':<9}{document['folder']}",
        f"  {'command':<9}{document['command'] or '-'}",
        "settings",
        *_indented(document["spec"]),
        "attempts",
    ]
    for attempt in document["attempts"]:
        # If the clock was set back meanwhile, show 0.
        seconds = duration(max(0.0, attempt["updated"] - attempt["started"]))
        error = f": {attempt['error']}" if "error" in attempt else ""
        lines.append(f"  {attempt['attempt']}  {attempt['state']}, from step {attempt['start_step']}, {seconds}{error}")
        lines += [f"    {note}" for note in attempt.get("notes", [])]
    if document["warnings"]:
        lines += ["warnings", *(f"  {line(warned)}, {warned['steps']} steps" for warned in document["warnings"])]
    lines += ["metrics", *(f"  {name:<40}{value:.6g}" for name, value in sorted(document["metrics"].items()))]
    return "\n".join([*lines, "files", *(f"  {path}" for path in document["files"])])


def _indented(spec: dict[str, Any]) -> list[str]:
    lines = []
    for key, value in spec.items():
        inner = ", ".join(f"{name}={item}" for name, item in value.items()) if isinstance(value, dict) else value
        lines.append(f"  {key:<9}{inner}")
    return lines
