"""`mcpo plan`: show the runs of a suite or train command."""

from typing import Annotated

import typer

from mcpo_cli.commands.options import Debug, Json, SuiteOverrides

MeanLength = Annotated[
    float | None,
    typer.Option(
        "--mean-length",
        metavar="TOKENS",
        help="Mean length of a response that estimates are made for; without it, what the task assumes.",
        show_default=False,
    ),
]


def plan(
    overrides: SuiteOverrides = None, mean_length: MeanLength = None, as_json: Json = False, debug: Debug = False
) -> None:
    """Show the runs of a suite, or of a train command: ids, states, estimated time. Starts no run."""
    from mcpo_cli.commands import dry_run
    from mcpo_cli.config import plan as plans

    suite, rest = plans.split_suite(overrides or [])
    if suite:
        verb = "reproduce" if plans.read(suite).table else "ablate"
        dry_run.show(
            plans.from_suite(suite, rest, f"mcpo {verb} {suite}"),
            verbose=False,
            as_json=as_json,
            mean_response=mean_length,
        )
    else:
        dry_run.show(plans.from_overrides(rest), verbose=False, as_json=as_json, mean_response=mean_length)
