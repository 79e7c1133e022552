"""Start the runs of a plan, or show them; shared by the commands that train."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from mcpo_cli import backends
from mcpo_cli.backends import cost
from mcpo_cli.commands import console
from mcpo_cli.config.plan import Cell, Plan
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import location
from mcpo_cli.model_facts import local_folder
from mcpo_cli.runs import attempts
from mcpo_cli.scheduling import estimate, scheduler
from mcpo_cli.scheduling.progress import Tracker


def execute(plan: Plan, *, dry_run: bool, as_json: bool) -> None:
    """Run `plan` and print the outcomes; on a dry run, show it instead."""
    if dry_run:
        show_plan(plan, as_json=as_json, previews=True)
        return
    document = run_plan(plan)
    if as_json:
        console.print_json(document)
    else:
        print_runs(document)


def _check_model(path: str) -> None:
    """Raise ConfigError if `model.path` can only be a folder of this machine, and is none."""
    try:
        local_folder(path)
    except ConfigError as error:
        raise ConfigError(f"model.path={error.message}", fix="model.path=FOLDER  (of this machine)") from error


def print_runs(document: Mapping[str, Any]) -> None:
    """Print the outcomes of `run_plan`."""
    rows = [[run["run_id"], run["arm"], run["state"], *_shown(run["metrics"])] for run in document["runs"]]
    console.print_table(["run", "arm", "state", "train accuracy", "eval pass@1"], rows)


def run_plan(plan: Plan) -> dict[str, Any]:
    """Run `plan` with a progress display; returns the document that `--json` prints."""
    return scheduler.document(plan, finish(plan))


def finish(plan: Plan) -> list[scheduler.Outcome]:
    """Run what is not done of `plan`, with a progress display; see `scheduler.run` for errors."""
    with console.display() as display:
        return scheduler.run(plan, display)


def show_plan(plan: Plan, *, as_json: bool, previews: bool = False) -> None:
    """Print the runs of `plan` with ids, states and estimated times. Writes nothing, imports no torch.

    previews: also print the command, environment and settings that a backend such as verl would start.

    Raises:
        ConfigError: with `previews`, `model.path` names a folder that is not there.
    """
    home = location()
    if previews:
        for path in filter(None, dict.fromkeys(cell.spec.model.path for cell in plan.cells)):
            _check_model(path)
    estimator = estimate.Estimator(home)
    runs = [_planned(cell, home, estimator) for cell in plan.cells]
    if previews:
        for cell, run in zip(plan.cells, runs, strict=True):
            if preview := backends.get(cell.spec.backend).preview(cell.spec, home):
                run["preview"] = preview
    parallel = scheduler.slots(plan)
    total = estimate.makespan([run["seconds_left"] for run in runs if run["seconds_left"]], parallel)
    basis = estimator.basis([cell.spec for cell in plan.cells])
    if as_json:
        about = {"seconds_left": round(total, 1), "parallel": parallel, "basis": basis}
        head = {"suite": plan.suite, "home": str(home), "command": plan.command}
        console.print_json({**head, "estimate": about, "runs": runs})
        return
    columns = ["run_id", "arm", "model", "seed", "state"]
    rows = [[*(str(run[column]) for column in columns), console.duration(run["seconds_left"])] for run in runs]
    console.print_table([*columns, "time left"], rows)
    done = sum(run["state"] == "done" for run in runs)
    rest = f"about {console.duration(total)} left, {parallel} at a time ({basis})"
    console.print_text(f"\n{done} of {len(runs)} runs done; {rest}\nstart or continue: {plan.command}")
    _show_costs(plan)
    for run in runs:
        if "preview" in run:
            console.print_text(f"\n{run['run_id']}\n{preview_text(run['preview'])}")


def _show_costs(plan: Plan) -> None:
    """Print the estimated GPU-hours, tokens and disk space of runs on GPUs, and how they were estimated."""
    specs = [cell.spec for cell in plan.cells if estimate.on_gpus(cell.spec)]
    if not specs:
        return
    rows = []
    for spec in specs:
        about = cost.of(spec)
        tokens = [f"{count / 1e9:.2f} G" for count in (about.sampled, about.trained)]
        sizes = [f"{size / 2**30:.0f} GiB" for size in (about.checkpoint, about.disk)]
        rows.append([spec.run_id, f"{about.gpu_seconds / 3600:,.0f}", *tokens, *sizes])
    console.print_text("")
    console.print_table(["run_id", "GPU-hours", "tokens sampled", "trained", "per checkpoint", "disk at most"], rows)
    console.print_text("\n" + "\n".join(dict.fromkeys(cost.basis(spec) for spec in specs)))


def preview_text(preview: Mapping[str, Any]) -> str:
    """What a backend would start, as text to read or to paste into a shell."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in preview["environment"].items()]
    command = " \\\n  ".join(shlex.quote(word) for word in preview["command"])
    settings = yaml.safe_dump(preview["config"], sort_keys=False, allow_unicode=True)
    return "\n".join(["# environment", *variables, "", "# command", command, "", "# settings", settings])


def _planned(cell: Cell, home: Path, estimator: estimate.Estimator) -> dict[str, Any]:
    spec, folder = cell.spec, home / "runs" / cell.spec.run_id
    state = attempts.state(folder, spec)
    seconds = 0.0 if state == "done" else estimator.seconds(spec, Tracker(folder, spec).read().step)
    return {
        "run_id": spec.run_id,
        "arm": cell.arm,
        **spec.about,
        "state": state,
        "seconds_left": round(seconds, 1),
        **({"cost": cost.of(spec).to_json()} if estimate.on_gpus(spec) else {}),
        "spec": spec.to_dict(),
    }


def _shown(metrics: dict[str, float]) -> list[str]:
    evals = [value for name, value in metrics.items() if name.startswith("eval/") and name.endswith("/pass_at_1")]
    accuracy = metrics.get("train/accuracy")
    return [
        "-" if accuracy is None else f"{accuracy:.3f}",
        "-" if not evals else f"{sum(evals) / len(evals):.3f}",
    ]
