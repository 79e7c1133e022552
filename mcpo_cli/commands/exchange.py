"""`mcpo runs export`, `bundle` and `unbundle`: results for other tools, and for other people."""

from pathlib import Path
from typing import Annotated

import typer

from mcpo_cli.commands.verbs import Debug, Json, What, complete_suite_or_runs

EXAMPLES = """\
Examples:

mcpo runs export --to data                 all done runs of MCPO_HOME

mcpo runs export table1 --to data          the runs of a suite

mcpo runs bundle table1 table1.mcpo        the same runs for a colleague,

mcpo runs unbundle table1.mcpo             who then prints the same Table 1: mcpo reproduce table1"""

Some = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SUITE|FILE|RUN_ID] [KEY=VALUE]",
        help="A suite or its file, with settings to change in it; or several runs (default: all done runs).",
        autocompletion=complete_suite_or_runs,
        show_default=False,
    ),
]
To = Annotated[Path, typer.Option(help="The folder to write; it must not exist.", show_default=False)]
NewFile = Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist.")]
Bundle = Annotated[Path, typer.Argument(metavar="FILE", help="A file that `mcpo runs bundle` wrote.")]


def export(to: To, what: Some = None, as_json: Json = False, debug: Debug = False) -> None:
    """Write done runs as tidy parquet files: settings, steps, scores, groups, eval, ...; one row an observation."""
    from mcpo_cli.analysis import exports
    from mcpo_cli.analysis.frames import Runs
    from mcpo_cli.commands import comparisons, console
    from mcpo_cli.runs.folders import whole

    folder = _new(to)
    plan = comparisons.plan_of(what, "mcpo runs export") if what else comparisons.all_done("mcpo runs export")
    tables = exports.tables(Runs(plan))
    with whole(folder, {"command": plan.command, "runs": [cell.spec.run_id for cell in plan.cells]}) as part:
        for name, table in tables.items():
            table.to_parquet(part / f"{name}.parquet", index=False)
    if as_json:
        rows = {name: len(table) for name, table in tables.items()}
        console.print_json({"folder": str(folder), "runs": len(plan.cells), "rows": rows})
    else:
        console.print_table(
            ["file", "rows"], [[f"{folder / name}.parquet", str(len(table))] for name, table in tables.items()]
        )


def bundle(what: What, file: NewFile, as_json: Json = False, debug: Debug = False) -> None:
    """Write the records of done runs into one file, without weights, to hand them to somebody else."""
    from mcpo_cli.analysis.frames import Runs
    from mcpo_cli.commands import comparisons, console
    from mcpo_cli.home import run_dir
    from mcpo_cli.store import bundles

    target = _new(file)
    ids = [cell.spec.run_id for cell in Runs(comparisons.plan_of(what, "mcpo runs bundle")).cells]
    bundles.write([run_dir(run_id) for run_id in ids], target)
    if as_json:
        console.print_json({"file": str(target), "bytes": target.stat().st_size, "runs": ids})
    else:
        console.print_text(f"{len(ids)} runs written to {target}, {target.stat().st_size / 1e6:.2f} MB")


def unbundle(file: Bundle, as_json: Json = False, debug: Debug = False) -> None:
    """Restore the runs of a bundle in MCPO_HOME: all of them, or none if one is there with other records."""
    from mcpo_cli import paths
    from mcpo_cli.commands import console
    from mcpo_cli.home import home
    from mcpo_cli.store import bundles

    restored, there = bundles.read(paths.named(file), home())
    if as_json:
        console.print_json({"home": str(home()), "restored": restored, "already_there": there})
    else:
        kept = f"; {len(there)} were there already" if there else ""
        console.print_text("\n".join([*restored, f"{len(restored)} runs restored in {home()}{kept}"]))


def _new(path: Path) -> Path:
    """The path of what is to be written. Raises ConfigError if something is there, or its folder is not."""
    from mcpo_cli import paths
    from mcpo_cli.errors import ConfigError

    path = paths.named(path).absolute()
    if path.exists():
        raise ConfigError(f"{path} already exists and is not overwritten", fix="name another one, or remove it")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent}", fix=f"mkdir -p {path.parent}")
    return path
