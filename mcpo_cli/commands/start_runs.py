"""Start the runs of a plan, follow them and print their outcomes; shared by the verbs that train."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mcpo_cli.commands import console, dry_run
from mcpo_cli.config.plan import Plan
from mcpo_cli.home import location
from mcpo_cli.scheduling import estimate, scheduler


def execute(
    plan: Plan, *, dry: bool, verbose: bool = False, as_json: bool = False, mean_response: float | None = None
) -> None:
    """Run `plan` and print the outcomes; on a dry run, show it instead (see `dry_run.show`)."""
    if dry:
        dry_run.show(plan, verbose=verbose, as_json=as_json, mean_response=mean_response)
        return
    document = run_plan(plan)
    if not as_json:
        print_runs(document)
    else:
        console.print_json(document)


def run_plan(plan: Plan) -> dict[str, Any]:
    """Run `plan` with a progress display; returns the document that `--json` prints."""
    outcomes = finish(plan)
    return scheduler.document(plan, outcomes)


def finish(plan: Plan) -> list[scheduler.Outcome]:
    """Run what is not done of `plan`, with a progress display; see `scheduler.run` for errors."""
    for caution in dry_run.cautions(plan, estimate.forecast(plan, location())):
        console.talk(f"warning: {caution}")
    with console.display() as display:
        return scheduler.run(plan, display)


def print_runs(document: Mapping[str, Any]) -> None:
    """Print the outcomes of `run_plan`."""
    rows = [[run["run_id"], run["arm"], run["state"], *_shown(run["metrics"])] for run in document["runs"]]
    console.print_table(["run", "arm", "state", "train accuracy", "eval pass@1"], rows)


def _shown(metrics: dict[str, float]) -> list[str]:
    evals = [value for name, value in metrics.items() if name.startswith("eval/") and name.endswith("/pass_at_1")]
    accuracy = metrics.get("train/accuracy")
    return ["-" if accuracy is None else f"{accuracy:.3f}", "-" if not evals else f"{sum(evals) / len(evals):.3f}"]


def within(plans: Mapping[str, Plan], budget: str) -> dict[str, Plan]:
    """The first runs of each plan that fit into an equal share of `budget`, such as `2h`; prints how many these are.

    Raises:
        ConfigError: `budget` is not a time, or the first runs of a plan do not fit.
    """
    share = console.seconds("--budget", budget) / len(plans)
    parts = {}
    for name, plan in plans.items():
        part = estimate.within(plan, share, location())
        console.talk(f"{name}: the first {len(part.cells)} of {len(plan.cells)} runs fit into the budget")
        parts[name] = replace(part, command=f"{plan.command} --budget {budget}")
    return parts
