"""The verbs that show results: `mcpo compare`, `reproduce` and `report`."""

from typing import Annotated

import typer

from mcpo_cli.commands.verbs import Debug, DryRun, Json, Overrides, Verbose, What, complete_artifacts, starting_with

COMPARE_EXAMPLES = """\
Examples:

mcpo compare table2                                      the arms of a suite, against its first one

mcpo compare table2 --baseline DAPO --metric best@8      another baseline, another headline

mcpo compare mine.yaml seed=0,1,2 --at seconds           a suite of yours, at equal time

mcpo compare dapo-toy-s-s0 mcpo-toy-s-s0                 runs by the beginnings of their ids

mcpo compare table2 --plan                               what N seeds can find, before training them"""


def _complete_arms(ctx: typer.Context, incomplete: str) -> list[str]:
    """The arms of the suite that is named, else those of all suites."""
    from mcpo_cli.config import plan

    named = [word for word in ctx.params.get("what") or [] if plan.is_suite(word)]
    arms = dict.fromkeys(arm for suite in named or plan.suites() for arm in plan.read(suite).arms)
    return starting_with(incomplete, arms)


def _complete_metrics(incomplete: str) -> list[str]:
    return starting_with(incomplete, ("pass@1", "best@8", "pass@8"))


def _complete_axes(incomplete: str) -> list[str]:
    from mcpo_cli.analysis.equal_cost import AXES

    return starting_with(incomplete, AXES)


Baseline = Annotated[
    str,
    typer.Option(
        metavar="ARM",
        help="The arm to compare with (default: the suite's, else its first).",
        autocompletion=_complete_arms,
    ),
]
Metric = Annotated[
    str,
    typer.Option(
        help="The headline's metric: pass@1, best@8 or pass@8 (default: the suite's, else pass@1).",
        autocompletion=_complete_metrics,
    ),
]
At = Annotated[
    list[str] | None,
    typer.Option(
        help="Budget at which arms are compared: steps, rollouts, trained_tokens, seconds, ... (repeatable; default: "
        "steps and rollouts).",
        autocompletion=_complete_axes,
    ),
]
Seeds = Annotated[bool, typer.Option("--plan", help="Show which difference N seeds can detect; needs no runs.")]


def compare(
    what: What,
    baseline: Baseline = "",
    metric: Metric = "",
    at: At = None,
    plan: Seeds = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare the arms of a suite, or single runs, with a baseline at equal cost. Trains nothing."""
    from mcpo_cli.analysis.comparison import Choice
    from mcpo_cli.commands import comparisons, console, seeds
    from mcpo_cli.config.plan import is_suite

    names, overrides = comparisons.parted(what, "mcpo compare")
    choice = Choice(baseline, metric, tuple(at or ()))
    if plan:
        seeds.show_reach(names[0], overrides, choice, as_json=as_json)
        return
    built = comparisons.suite(names[0], overrides, choice) if is_suite(names[0]) else comparisons.runs(names, choice)
    if as_json:
        console.print_json({"comparisons": [one.to_json() for one in built]})
    else:
        comparisons.show(built)


Artifact = Annotated[
    str,
    typer.Argument(
        metavar="ARTIFACT|SUITE|FILE",
        help="table1, fig2 (all its parts), ..., figures, all (and the report); a suite; a file of a suite or claims.",
        autocompletion=complete_artifacts,
    ),
]
Budget = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="Only the first runs (seeds or points) that are expected to fit into this time, such as 90m or 2h.",
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
    """Train the runs that a table or figure needs, then build and print it. Rerunning gives the same numbers."""
    from mcpo_cli.analysis import artifacts
    from mcpo_cli.commands import build_artifacts, console
    from mcpo_cli.commands import dry_run as shown
    from mcpo_cli.commands.start_runs import run_plan, within

    names = artifacts.names(artifact)
    plans = build_artifacts.plans(names, overrides or [], f"mcpo reproduce {artifact}")
    if budget:
        plans = within(plans, budget)
    if dry_run:
        shown.show(build_artifacts.merged(plans), as_json=as_json, verbose=verbose)
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


def report(overrides: Overrides = None, as_json: Json = False, debug: Debug = False) -> None:
    """Build everything whose runs are done, and write report.html and report.md. Trains nothing."""
    from mcpo_cli.machine import lasting

    with lasting():
        from mcpo_cli.commands import build_artifacts

    build_artifacts.report(overrides or [], as_json=as_json)
