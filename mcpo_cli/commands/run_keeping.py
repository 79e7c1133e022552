"""`mcpo runs tag`, `delete`, `restore` and `empty-trash`: what a user keeps, and under which words."""

from typing import Annotated

import typer

from mcpo_cli.commands.verbs import Debug, Json, RunId, complete_run_id, starting_with

RunIds = Annotated[
    list[str],
    typer.Argument(metavar="RUN_ID...", help="Ids of runs, or the starts of them.", autocompletion=complete_run_id),
]


def complete_trash(incomplete: str) -> list[str]:
    """Ids of the runs in the trash."""
    from mcpo_cli.home import location
    from mcpo_cli.runs import trash

    return starting_with(incomplete, (path.name for path in trash.contents(location())))


Deleted = Annotated[
    list[str],
    typer.Argument(metavar="RUN_ID...", help="Ids of runs in the trash.", autocompletion=complete_trash),
]
Words = Annotated[list[str], typer.Argument(metavar="TAG...", help="Words of yours, such as keep.")]


def tag(
    run_id: RunId,
    words: Words,
    remove: Annotated[bool, typer.Option("--remove", help="Take these tags away.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Give a run tags, which `mcpo runs list --where tag=TAG` finds."""
    from mcpo_cli.commands import console
    from mcpo_cli.home import location
    from mcpo_cli.runs import catalog

    name = catalog.folder(location(), run_id).name
    now = catalog.tag(location(), name, words, remove=remove)
    if as_json:
        console.print_json({"run_id": name, "tags": now})
    else:
        console.print_text(f"{name}: {', '.join(now) or 'no tags'}")


def delete(run_ids: RunIds, as_json: Json = False, debug: Debug = False) -> None:
    """Move runs to the trash of MCPO_HOME, from where `mcpo runs restore` brings them back; MLflow keeps its copy."""
    from mcpo_cli.commands import console
    from mcpo_cli.home import location
    from mcpo_cli.runs import trash

    moved = [path.name for path in trash.delete(location(), run_ids)]
    if as_json:
        console.print_json({"trash": str(location() / trash.TRASH), "runs": moved})
    else:
        then = f"back: mcpo runs restore {' '.join(moved)}; for good: mcpo runs empty-trash"
        console.print_text("\n".join([*moved, f"{len(moved)} moved to {location() / trash.TRASH}", then]))


def restore(run_ids: Deleted, as_json: Json = False, debug: Debug = False) -> None:
    """Bring runs back from the trash."""
    from mcpo_cli.commands import console
    from mcpo_cli.home import location
    from mcpo_cli.runs import trash

    back = [path.name for path in trash.restore(location(), run_ids)]
    if as_json:
        console.print_json({"home": str(location()), "runs": back})
    else:
        console.print_text("\n".join([*back, f"{len(back)} restored in {location()}"]))


def empty_trash(as_json: Json = False, debug: Debug = False) -> None:
    """Remove the runs in the trash for good."""
    from mcpo_cli.commands import console
    from mcpo_cli.home import location
    from mcpo_cli.runs import trash

    removed = [path.name for path in trash.empty(location())]
    if as_json:
        console.print_json({"home": str(location()), "runs": removed})
    else:
        console.print_text(f"{len(removed)} removed for good from {location() / trash.TRASH}")
