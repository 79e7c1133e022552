"""`mcpo runs`: list and show the runs of MCPO_HOME; copy them to the MLflow store, other tools and other people."""

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcpo_cli import extras, paths
from mcpo_cli.commands import run_list
from mcpo_cli.commands.completion import completing
from mcpo_cli.commands.reply import Reply, table, verb
from mcpo_cli.commands.samples import samples
from mcpo_cli.commands.verbs import Family, RunId, What
from mcpo_cli.errors import ConfigError, StoreError
from mcpo_cli.home import home, location, run_dir

if TYPE_CHECKING:
    from mcpo_cli.config.plan import Plan

STEP = re.compile(r"step_\d+\.jsonl$")
EXAMPLES = """\
\b
Examples:
  mcpo runs export --to data                 all done runs of MCPO_HOME
  mcpo runs export table1 --to data          the runs of a suite
  mcpo runs bundle table1 table1.mcpo        the same runs for a colleague,
  mcpo runs unbundle table1.mcpo             who then prints the same Table 1: mcpo reproduce table1"""

app = typer.Typer(
    cls=Family,
    help="List, show, tag and delete runs; copy them to the MLflow store, to other tools and to other people.",
    no_args_is_help=True,
)
app.command("list", epilog=run_list.EXAMPLES)(run_list.list_runs)
app.command()(samples)

Some = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SUITE|FILE|RUN_ID] [KEY=VALUE]",
        help="A suite or its file, with settings to change in it; or several runs (default: all done runs).",
        autocompletion=completing("suite", "override", "run"),
        show_default=False,
    ),
]
To = Annotated[Path, typer.Option(help="The folder to write; it must not exist.", show_default=False)]
NewFile = Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist.")]
Bundle = Annotated[Path, typer.Argument(metavar="FILE", help="A file that `mcpo runs bundle` wrote.")]


RunIds = Annotated[
    list[str],
    typer.Argument(metavar="RUN_ID...", help="Ids of runs, or the starts of them.", autocompletion=completing("run")),
]


Deleted = Annotated[
    list[str],
    typer.Argument(metavar="RUN_ID...", help="Ids of runs in the trash.", autocompletion=completing("deleted run")),
]
Tags = Annotated[list[str], typer.Argument(metavar="TAG...", help="Words of yours, such as keep.")]


@app.command("show")
@verb(
    "run_id, suite, arm, task, method, model, scale, regime, base_seed, seed, state, step, steps, score, date, tags, "
    "command, folder, spec, attempts, warnings, metrics, files"
)
def show_run(run_id: RunId) -> Reply:
    """Show one run: settings, attempts, newest metrics, files."""
    from mcpo_cli.runs import attempts, catalog, sanity
    from mcpo_cli.runs.journal import Journal
    from mcpo_cli.scheduling.progress import final_metrics

    run = catalog.find(location(), run_id)
    journal = Journal(run.folder)
    document = {
        **run_list.row(run, run.summary, run.origin.get("arm", "-"), run.tags),
        "command": run.origin.get("command"),
        "folder": str(run.folder),
        "spec": run.spec.to_dict(),
        "attempts": [{"attempt": name, **status} for name, status in attempts.statuses(run.folder).items()],
        "warnings": sanity.warnings(journal.steps()),
        "metrics": final_metrics(run.folder),
        "files": _files(run.folder),
    }
    return Reply(document, _text(document))


@app.command()
@verb("run_id, tags")
def tag(
    run_id: RunId,
    words: Tags,
    remove: Annotated[bool, typer.Option("--remove", help="Take these tags away.")] = False,
) -> Reply:
    """Give a run tags, which `mcpo runs list --where tag=TAG` finds."""
    from mcpo_cli.runs import catalog

    name = catalog.folder(location(), run_id).name
    tags = catalog.tag(location(), name, words, remove=remove)
    return Reply({"run_id": name, "tags": tags}, f"{name}: {', '.join(tags) or 'no tags'}")


@app.command()
@verb("trash, runs")
def delete(run_ids: RunIds) -> Reply:
    """Move runs to the trash of MCPO_HOME, from where `mcpo runs restore` brings them back; MLflow keeps its copy."""
    from mcpo_cli.runs import catalog, trash

    names = [path.name for path in trash.delete(location(), run_ids)]
    folder = location() / catalog.TRASH
    hint = f"back: mcpo runs restore {' '.join(names)}; for good: mcpo runs empty-trash"
    return Reply({"trash": str(folder), "runs": names}, [*names, f"{len(names)} moved to {folder}", hint])


@app.command()
@verb("home, runs")
def restore(run_ids: Deleted) -> Reply:
    """Bring runs back from the trash."""
    from mcpo_cli.runs import trash

    names = [path.name for path in trash.restore(location(), run_ids)]
    return Reply({"home": str(location()), "runs": names}, [*names, f"{len(names)} restored in {location()}"])


@app.command("empty-trash")
@verb("home, runs")
def empty_trash() -> Reply:
    """Remove the runs in the trash for good."""
    from mcpo_cli.runs import catalog, trash

    names = [path.name for path in trash.empty(location())]
    sentence = f"{len(names)} removed for good from {location() / catalog.TRASH}"
    return Reply({"home": str(location()), "runs": names}, sentence)


@app.command("sync")
@verb("store, points, left")
def sync_runs() -> Reply:
    """Upload the missing runs and evaluations of MCPO_HOME to the MLflow store. Rerunning sends nothing twice."""
    from mcpo_cli.commands import console
    from mcpo_cli.evaluation import upload as evaluations
    from mcpo_cli.machine import freeze_gc
    from mcpo_cli.trackers import resolve

    extras.require("mlflow", "mcpo runs sync")
    uri = resolve("")
    if uri is None:
        raise ConfigError("MLFLOW_TRACKING_URI=offline names no store", fix="unset MLFLOW_TRACKING_URI")
    with freeze_gc():
        from mcpo_cli.trackers.mlflow import Store

    store = Store(uri)
    store.check()
    points = store.sync(console.progress)
    left = dict(store.left)
    points |= evaluations.sync(store)
    document = {"store": store.shown, "points": points, "left": left}
    sent = f"{sum(points.values())} points of {len(points)} runs and evaluations"
    return Reply(document, f"{sent} copied to {store.shown}", _not_sent(left) if left else None)


def _not_sent(left: Mapping[str, str]) -> StoreError:
    head = f"{len(left)} runs are not sent, or not in full; the others are"
    fix = (
        "remove the folder of a damaged run, and repeat the command that trained it; delete one that the store "
        "refuses or has from elsewhere in mcpo ui, and repeat this command"
    )
    return StoreError("\n  ".join([f"{head}:", *left.values()]), fix=fix)


def _all_done(command: str) -> "Plan":
    """The plan of all done runs of MCPO_HOME. command: the verb that asks for them.

    Raises:
        ConfigError: no run is done.
    """
    from mcpo_cli.commands import console
    from mcpo_cli.config import plan
    from mcpo_cli.runs import catalog

    reasons: dict[str, str] = {}
    runs = tuple(run.planned for run in catalog.runs(location(), reasons.__setitem__) if run.state == "done")
    if reasons:
        console.talk(catalog.left_out(reasons))
    if not runs:
        raise ConfigError(f"no done runs in {location()}", fix="mcpo train scale=smoke")
    return plan.Plan("runs", command, runs)


@app.command(epilog=EXAMPLES)
@verb("folder, runs, rows")
def export(to: To, what: Some = None) -> Reply:
    """Write done runs as tidy parquet files: settings, steps, scores, groups, eval, ...; one row per observation."""
    from mcpo_cli.compare import subjects
    from mcpo_cli.measures.frames import Runs, tables
    from mcpo_cli.runs.folders import atomic_folder

    folder = _new(to)
    plan = subjects.plan_of(what, "mcpo runs export") if what else _all_done("mcpo runs export")
    frames = tables(Runs(plan))
    with atomic_folder(folder, {"command": plan.command, "runs": [run.spec.run_id for run in plan.runs]}) as part:
        for name, frame in frames.items():
            frame.to_parquet(part / f"{name}.parquet", index=False)
    rows = {name: len(frame) for name, frame in frames.items()}
    grid = table(["file", "rows"], [[f"{folder / name}.parquet", str(count)] for name, count in rows.items()])
    return Reply({"folder": str(folder), "runs": len(plan.runs), "rows": rows}, [grid])


@app.command(epilog=EXAMPLES)
@verb("file, bytes, runs")
def bundle(what: What, file: NewFile) -> Reply:
    """Write the records of done runs into one file, without weights, to hand them to somebody else."""
    from mcpo_cli.compare import subjects
    from mcpo_cli.measures.frames import Runs
    from mcpo_cli.runs.bundle import write

    target = _new(file)
    ids = [run.spec.run_id for run in Runs(subjects.plan_of(what, "mcpo runs bundle")).planned]
    write([run_dir(run_id) for run_id in ids], target)
    size = target.stat().st_size
    sentence = f"{len(ids)} runs written to {target}, {size / 1e6:.2f} MB"
    return Reply({"file": str(target), "bytes": size, "runs": ids}, sentence)


@app.command(epilog=EXAMPLES)
@verb("home, restored, already_there")
def unbundle(file: Bundle) -> Reply:
    """Restore the runs of a bundle in MCPO_HOME: all of them, or none if one exists with other records."""
    from mcpo_cli.runs.bundle import restore

    restored, duplicates = restore(paths.named(file), home())
    note = f"; {len(duplicates)} were there already" if duplicates else ""
    document = {"home": str(home()), "restored": restored, "already_there": duplicates}
    return Reply(document, [*restored, f"{len(restored)} runs restored in {home()}{note}"])


def _new(path: Path) -> Path:
    """The path of a file to write. Raises ConfigError if it exists, or its folder does not."""
    path = paths.named(path).absolute()
    if path.exists():
        raise ConfigError(f"{path} already exists and is not overwritten", fix="name another one, or remove it")
    if not path.parent.is_dir():
        raise ConfigError(f"the folder {path.parent} does not exist", fix=f"mkdir -p {path.parent}")
    return path


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
        f"  {'tags':<9}{', '.join(document['tags']) or '-'}",
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
    longest = max(map(len, document["metrics"]), default=0)
    lines += ["metrics", *(f"  {name:<{longest}}  {value:.6g}" for name, value in sorted(document["metrics"].items()))]
    return "\n".join([*lines, "files", *(f"  {path}" for path in document["files"])])


def _indented(spec: dict[str, Any]) -> list[str]:
    """One line per group of settings, wrapped."""
    from mcpo_cli.commands.console import width

    longest = max(map(len, spec))
    lines = []
    for key, value in spec.items():
        inner = ", ".join(f"{name}={item}" for name, item in value.items()) if isinstance(value, dict) else str(value)
        head = f"  {key:<{longest}}  "
        lines += textwrap.wrap(
            inner, width(), initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
        ) or [head.rstrip()]
    return lines
