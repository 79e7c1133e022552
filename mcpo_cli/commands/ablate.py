"""`mcpo ablate`: train a method with its components removed or changed one at a time, and compare the arms."""

from typing import Annotated, Literal

import typer

from mcpo_cli.commands.options import Debug, DryRun, Json, SuiteOverrides, Verbose

Until = Annotated[
    Literal["decided"] | None,
    typer.Option(
        help="decided: 3, 6, then 12 seeds, stopping once every arm's difference to the baseline has a verdict.",
        show_default=False,
    ),
]


def ablate(
    overrides: SuiteOverrides = None,
    until: Until = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train all arms of a suite and compare them. Default: table2 (MCPO, its two components left out, DAPO)."""
    from mcpo_cli.analysis.comparison import Choice
    from mcpo_cli.commands import compare_runs, console, train_in_stages
    from mcpo_cli.commands.dry_run import show as show_dry_run
    from mcpo_cli.commands.start_runs import print_runs, run_plan
    from mcpo_cli.config import plan

    named, rest = plan.split_suite(overrides or [])
    suite, command = named or "table2", f"mcpo ablate {named}".strip()
    if dry_run:
        show_dry_run(plan.from_suite(suite, rest, command), as_json=as_json, verbose=verbose)
        return
    if until:
        document, rest = train_in_stages.train(suite, rest, command)
    else:
        document = run_plan(plan.from_suite(suite, rest, command))
    built = compare_runs.suite(suite, rest, Choice())
    if as_json:
        console.print_json({**document, "comparisons": [one.to_json() for one in built]})
        return
    print_runs(document)
    compare_runs.show(built)
    if until:
        train_in_stages.show(document["decisions"])
