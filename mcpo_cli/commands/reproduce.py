"""`mcpo reproduce`: run what a table or figure of the paper needs, then build and print it."""

from typing import Annotated

import typer

from mcpo_cli.commands.options import Debug, DryRun, Json, Overrides, Verbose, complete_artifacts

Artifact = Annotated[
    str,
    typer.Argument(
        metavar="ARTIFACT|SUITE|FILE",
        help="table1, fig2 (all its parts), ..., figures, all (and the report); a suite; the file of one or of claims.",
        autocompletion=complete_artifacts,
    ),
]
Budget = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="Only the first runs that are expected to end within it, such as 90m or 2h: the first seeds, or points.",
        show_default=False,
    ),
]


def reproduce(
    artifact: Artifact,
    overrides: Overrides = None,
    budget: Budget = "",
    dry_run: DryRun = False,
    verbose: Verbose = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Run what a table or figure needs, then build and print it. Rerunning trains nothing; numbers are identical."""
    from mcpo_cli.analysis import artifacts
    from mcpo_cli.commands import build_artifacts, console
    from mcpo_cli.commands.dry_run import show as show_dry_run
    from mcpo_cli.commands.start_runs import run_plan, within

    names = artifacts.names(artifact)
    plans = build_artifacts.plans(names, overrides or [], f"mcpo reproduce {artifact}")
    if budget:
        plans = within(plans, budget)
    if dry_run:
        show_dry_run(build_artifacts.merged(plans), as_json=as_json, verbose=verbose)
        return
    workshop = build_artifacts.workshop(plans, overrides or [])
    for name in names:
        workshop.check(artifacts.get(name))
    documents = [run_plan(planned) for planned in plans.values()]
    if artifact == artifacts.ALL:
        build_artifacts.report(overrides or [], as_json=as_json, suites=documents)
        return
    made = {name: workshop.build(name) for name in names}
    build_artifacts.publish(plans, made)
    built = list(made.values())
    if as_json:
        console.print_json({"suites": documents, "artifacts": {one.name: one.to_json() for one in built}})
        return
    for one in built:
        build_artifacts.show(one, whole=len(built) == 1)
