"""Start the runs of a plan, follow them and print their outcomes; shared by the verbs that train."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from mcpo_cli.analysis.render import Grid
from mcpo_cli.commands import console, dry_run
from mcpo_cli.commands.reply import Reply, table
from mcpo_cli.config.plan import Plan
from mcpo_cli.home import location
from mcpo_cli.scheduling import estimate, scheduler
from mcpo_cli.scheduling.progress import RunView, View


def execute(plan: Plan) -> Reply:
    """Run `plan`; its outcomes."""
    document = run_plan(plan)
    after = {"records:": str(location() / "runs"), **next_steps(plan)}
    return Reply(document, [runs_table(document), partial(console.talk_pairs, after)])


def next_steps(plan: Plan) -> dict[str, str]:
    """The commands that show the runs of `plan` once they are done, by their subject."""
    one = plan.cells[0].spec.run_id
    if len({cell.arm for cell in plan.cells}) > 1:
        first = {"comparison:": plan.command.replace("mcpo train", "mcpo compare", 1)}
    else:
        first = {"curves:": f"mcpo runs show {one}"}
    return {**first, "answers:": f"mcpo runs samples {one}", "charts:": "mcpo ui"}


def run_plan(plan: Plan) -> dict[str, Any]:
    """Run `plan` with a progress display; returns the document that `--json` prints."""
    return scheduler.document(plan, finish(plan))


Callback = Callable[[RunView], None] | None


def finish(plan: Plan, on_step: Callback = None, on_end: Callback = None) -> list[scheduler.Outcome]:
    """Run the remaining runs of `plan`, with a progress display and callbacks; see `scheduler.run` for errors."""
    for caution in dry_run.cautions(plan, estimate.forecast(plan, location())):
        console.talk(f"warning: {caution}")
    with console.display() as display:
        return scheduler.run(plan, _Calling(display, on_step, on_end))


class _Calling:
    """A display that also calls functions when a run has done a step or has ended."""

    def __init__(self, display: scheduler.Display, on_step: Callback, on_end: Callback) -> None:
        self.display, self.on_step, self.on_end = display, on_step, on_end
        self._seen: dict[str, tuple[int, str]] = {}

    def update(self, view: View) -> None:
        """See `scheduler.Display`."""
        self.display.update(view)
        for one in view.cells:
            key, now = one.cell.spec.run_id, (one.progress.step, one.state)
            before = self._seen.setdefault(key, now)
            self._seen[key] = now
            if self.on_step and now[0] > before[0]:
                self.on_step(one)
            if self.on_end and one.state != before[1] and one.state not in ("planned", "running"):
                self.on_end(one)

    def note(self, text: str) -> None:
        """See `scheduler.Display`."""
        self.display.note(text)


def runs_table(document: Mapping[str, Any]) -> Grid:
    """The outcomes of `run_plan`."""
    rows = [[run["run_id"], run["arm"], run["state"], *_shown(run["metrics"])] for run in document["runs"]]
    return table(["run", "arm", "state", "train accuracy", "eval pass@1"], rows)


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
