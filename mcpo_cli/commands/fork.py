"""`mcpo fork`: begins at states that runs saved, with forks of one run or with the arms of a branch study."""

import shlex
from collections.abc import Sequence
from typing import Annotated

import typer

from mcpo_cli.commands.completion import completing
from mcpo_cli.commands.console import talk
from mcpo_cli.commands.reply import Reply, verb
from mcpo_cli.commands.verbs import DryRun, Overrides, Verbose
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import location

EXAMPLES = """\
\b
Examples:
  mcpo fork dapo-toy-s-s0 --at 10 method=dapo,mcpo       the same first ten steps, then each method's own
  mcpo fork dapo-toy-s-s0 --at 10 train.lr=1e-4,3e-4     or each step size's
  mcpo fork toy                             a branch study: eight arms, three states of six runs, at toy scale
  mcpo fork toy seed=0,1,2,3 --dry-run      which trunk runs, and for how long
  mcpo fork ./mine.yaml                     a study of yours; docs/branching.md explains its file"""

Origin = Annotated[
    str,
    typer.Argument(
        metavar="RUN_ID|STUDY|FILE",
        help="A run's id, or the start of it; or a branch study, or its YAML file.",
        autocompletion=completing("run", "branch study"),
    ),
]
At = Annotated[
    int | None, typer.Option("--at", min=1, help="Of a run: the global step that the forks share as their last.")
]


@verb("suite, home, runs, rows, sentence, ...; of a study: study, points, rows, sentence, ...")
def fork(
    origin: Origin, at: At = None, overrides: Overrides = None, dry_run: DryRun = False, verbose: Verbose = False
) -> Reply:
    """Continue copies of a run from a global step, each with another method or step size; show what that changed.

    With a branch study: compare one global step of each arm, from the same saved states of several runs.
    """
    words = overrides or []
    _check_at(origin, at)
    if at is None:
        return _branch(origin, words, dry_run=dry_run, verbose=verbose)
    return _fork(origin, at, words, dry_run=dry_run, verbose=verbose)


def _check_at(origin: str, at: int | None) -> None:
    """Raise ConfigError if a branch study has `--at`, or a run has not."""
    from mcpo_cli.config import branching, presets
    from mcpo_cli.runs import catalog

    is_study = presets.is_file(origin) or origin in branching.studies()
    if is_study and at:
        raise ConfigError(
            f"--at {at} is for a run; the file of the branch study {origin} has the steps after which its arms begin",
            fix=f"mcpo fork {origin}",
        )
    if not is_study and not at and any(run.name.startswith(origin) for run in catalog.folders(location())):
        raise ConfigError(
            f"{origin} is a run: --at is missing, the global step that its forks share as their last",
            fix=f"mcpo fork {origin} --at STEP method=NAME",
        )


def _fork(run_id: str, at: int, words: Sequence[str], *, dry_run: bool, verbose: bool) -> Reply:
    from mcpo_cli.commands import dry_run as shown
    from mcpo_cli.config import forking
    from mcpo_cli.runs import catalog
    from mcpo_cli.scheduling import outcome, start

    parent = catalog.find(location(), run_id).spec
    command = shlex.join(["mcpo", "fork", parent.run_id, "--at", str(at), *words])
    plan = forking.plan(parent, at, words, command)
    if dry_run:
        return shown.show_plan(plan, verbose=verbose)
    from mcpo_cli.commands import artifact_page
    from mcpo_cli.report import build

    document = outcome.document(plan, start.train(plan))
    built = build.build_forks(plan, words)
    return Reply({**built.to_json(), **document}, artifact_page.page(built, full=True))


def _branch(study: str, words: Sequence[str], *, dry_run: bool, verbose: bool) -> Reply:
    from mcpo_cli.commands import dry_run as shown
    from mcpo_cli.config import branching

    content, command = branching.read(study), shlex.join(["mcpo", "fork", study, *words])
    trunks = branching.trunks(content, words)
    if dry_run:
        points = sum(len(trunk.at) for trunk in trunks)
        talk(
            f"then {len(content.arms)} arms take a global step at each of {points} points; that is not in the forecast"
        )
        return shown.show_plan(branching.plan(study, trunks, command), verbose=verbose)
    from mcpo_cli.commands import artifact_page
    from mcpo_cli.report import build
    from mcpo_cli.scheduling import branches

    branches.measure(study, trunks, command)
    built = build.build_branches(study, content, trunks, words, command)
    document = {"study": study, "points": branches.points(trunks), **built.to_json()}
    return Reply(document, artifact_page.page(built, full=True))
