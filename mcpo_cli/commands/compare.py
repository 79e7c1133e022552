"""`mcpo compare`: the arms of a suite, or single runs, against a baseline at equal cost."""

from typing import Annotated

import typer

from mcpo_cli.commands.options import Debug, Json, What

EPILOG = """\
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
    return [arm for arm in arms if arm.startswith(incomplete)]


def _complete_metrics(incomplete: str) -> list[str]:
    return [name for name in ("pass@1", "best@8", "pass@8") if name.startswith(incomplete)]


def _complete_axes(incomplete: str) -> list[str]:
    from mcpo_cli.analysis.equal_cost import AXES

    return [name for name in AXES if name.startswith(incomplete)]


Baseline = Annotated[
    str,
    typer.Option(
        metavar="ARM",
        help="The arm to compare with (default: the suite's, else its first).",
        autocompletion=_complete_arms,
        show_default=False,
    ),
]
Metric = Annotated[
    str,
    typer.Option(
        help="The headline's metric: pass@1, best@8 or pass@8 (default: the suite's, else pass@1).",
        autocompletion=_complete_metrics,
        show_default=False,
    ),
]
At = Annotated[
    list[str] | None,
    typer.Option(
        help="Equal in what: steps, rollouts, trained_tokens, seconds, ... (default: steps and rollouts; repeatable).",
        autocompletion=_complete_axes,
        show_default=False,
    ),
]
Seeds = Annotated[bool, typer.Option("--plan", help="Show what N seeds can find; needs no runs.")]


def compare(
    what: What,
    baseline: Baseline = "",
    metric: Metric = "",
    at: At = None,
    seeds: Seeds = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare the arms of a suite, or single runs, with a baseline at equal cost. Trains nothing."""
    from mcpo_cli.analysis.comparison import Choice
    from mcpo_cli.commands import compare_runs, console, named_runs, plan_seeds
    from mcpo_cli.config import plan

    names, overrides = named_runs.parted(what, "mcpo compare")
    choice = Choice(baseline, metric, tuple(at or ()))
    if seeds:
        plan_seeds.show(names[0], overrides, choice, as_json=as_json)
        return
    if plan.is_suite(names[0]):
        built = compare_runs.suite(names[0], overrides, choice)
    else:
        built = compare_runs.runs(names, choice)
    if as_json:
        console.print_json({"comparisons": [one.to_json() for one in built]})
    else:
        compare_runs.show(built)
