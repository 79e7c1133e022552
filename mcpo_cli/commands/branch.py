"""`mcpo branch`: let several arms take one global step from the same saved states, and compare what it did."""

import shlex
from typing import Annotated

import typer

from mcpo_cli.commands.options import Debug, DryRun, Json, Overrides

EPILOG = """\
Examples:

mcpo branch toy                       eight arms, three states of six runs, at toy scale

mcpo branch toy seed=0,1,2,3 --dry-run    which trunk runs, and for how long

mcpo branch ./mine.yaml               a study of yours; docs/branching.md explains its file"""


def _complete_studies(incomplete: str) -> list[str]:
    from mcpo_cli.config import branching

    return [name for name in branching.studies() if name.startswith(incomplete)]


Name = Annotated[
    str,
    typer.Argument(metavar="STUDY|FILE", help="A branch study, or its YAML file.", autocompletion=_complete_studies),
]


def branch(
    study: Name, overrides: Overrides = None, dry_run: DryRun = False, as_json: Json = False, debug: Debug = False
) -> None:
    """Compare what one global step of each arm does to mastered and held-out prompts, from the same saved states."""
    from mcpo_cli.commands import branch_runs, build_artifacts, console
    from mcpo_cli.commands.dry_run import show as show_dry_run
    from mcpo_cli.config import branching

    words = overrides or []
    content, command = branching.read(study), shlex.join(["mcpo", "branch", study, *words])
    trunks = branching.trunks(content, words)
    if dry_run:
        show_dry_run(branching.plan(study, trunks, command), as_json=as_json, verbose=False)
        return
    for trunk in trunks:
        branch_runs.measure(study, trunk, command)
    built = branch_runs.build(study, content, trunks, words, command)
    if as_json:
        console.print_json({"study": study, "points": branch_runs.points(trunks), **built.to_json()})
    else:
        build_artifacts.show(built, whole=True)
