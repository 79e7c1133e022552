"""The verbs that begin at a state that a run saved: `mcpo fork` and `mcpo branch`."""

import shlex
from typing import Annotated

import typer

from mcpo_cli.commands.completion import completing
from mcpo_cli.commands.reply import Reply, verb
from mcpo_cli.commands.verbs import (
    DryRun,
    Overrides,
    RunId,
    Verbose,
)
from mcpo_cli.home import location

EXAMPLES = {
    "fork": """\
\b
Examples:
  mcpo fork dapo-toy-s-s0 --at 10 method=dapo,mcpo       the same first ten steps, then each method's own
  mcpo fork dapo-toy-s-s0 --at 10 train.lr=1e-4,3e-4     or each step size's""",
    "branch": """\
\b
Examples:
  mcpo branch toy                       eight arms, three states of six runs, at toy scale
  mcpo branch toy seed=0,1,2,3 --dry-run    which trunk runs, and for how long
  mcpo branch ./mine.yaml               a study of yours; docs/branching.md explains its file""",
}


@verb
def fork(
    run_id: RunId,
    at: Annotated[int, typer.Option("--at", min=1, help="The global step that the forks share as their last.")],
    overrides: Overrides = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,
) -> Reply:
    """Continue copies of a run from a global step, each with another method or step size; show what that changed."""
    from mcpo_cli.commands import dry_run as shown
    from mcpo_cli.config import forking
    from mcpo_cli.runs import catalog
    from mcpo_cli.scheduling import start
    from mcpo_cli.scheduling.forecast import forecast

    parent, words = catalog.find(location(), run_id).spec, overrides or []
    command = shlex.join(["mcpo", "fork", parent.run_id, "--at", str(at), *words])
    chosen = forking.plan(parent, at, words, command)
    if dry_run:
        return shown.show_plan(forecast(chosen), verbose=verbose)
    from mcpo_cli.commands import artifact_page
    from mcpo_cli.report import build

    document = start.document(forecast(chosen))
    built = build.build_forks(chosen, words)
    return Reply({**built.to_json(), **document}, artifact_page.page(built, full=True))


Study = Annotated[
    str,
    typer.Argument(metavar="STUDY|FILE", help="A study, or its YAML file.", autocompletion=completing("branch study")),
]


@verb
def branch(study: Study, overrides: Overrides = None, dry_run: DryRun = False) -> Reply:
    """Compare what one global step of each arm does to mastered and held-out prompts, from the same saved states."""
    from mcpo_cli.commands import dry_run as shown
    from mcpo_cli.config import branching
    from mcpo_cli.scheduling.forecast import forecast

    words = overrides or []
    content, command = branching.read(study), shlex.join(["mcpo", "branch", study, *words])
    trunks = branching.trunks(content, words)
    if dry_run:
        return shown.show_plan(forecast(branching.plan(study, trunks, command)), verbose=False)
    from mcpo_cli.commands import artifact_page
    from mcpo_cli.report import build
    from mcpo_cli.scheduling import branches

    for trunk in trunks:
        branches.measure(study, trunk, command)
    built = build.build_branches(study, content, trunks, words, command)
    document = {
        "study": study,
        "points": branches.points(trunks),
        **built.to_json(),
    }
    return Reply(document, artifact_page.page(built, full=True))
