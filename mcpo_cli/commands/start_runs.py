"""Start the runs of a plan, or show them; shared by the commands that train."""

import math
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mcpo_cli import backends
from mcpo_cli.backends.local import needs
from mcpo_cli.commands import console
from mcpo_cli.config.plan import Cell, Plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import location
from mcpo_cli.machine import GIB
from mcpo_cli.model_facts import local_folder
from mcpo_cli.runs import attempts
from mcpo_cli.scheduling import estimate, scheduler
from mcpo_cli.scheduling.progress import Tracker


def execute(plan: Plan, *, dry_run: bool, verbose: bool, as_json: bool) -> None:
    """Run `plan` and print the outcomes; on a dry run, show it instead."""
    if dry_run:
        show_dry_run(plan, verbose=verbose, as_json=as_json)
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


def within(plans: Mapping[str, Plan], budget: str) -> dict[str, Plan]:
    """The first runs of each plan that fit into an equal share of `budget`, such as `2h`; says how many these are.

    Raises:
        ConfigError: `budget` is no time, or the first runs of a plan do not fit.
    """
    share = console.seconds("--budget", budget) / len(plans)
    parts = {}
    for name, plan in plans.items():
        part = estimate.within(plan, share, location(), scheduler.slots(plan))
        console.talk(f"{name}: the first {len(part.cells)} of {len(plan.cells)} runs fit into the budget")
        parts[name] = replace(part, command=f"{plan.command} --budget {budget}")
    return parts


def finish(plan: Plan) -> list[scheduler.Outcome]:
    """Run what is not done of `plan`, with a progress display; see `scheduler.run` for errors."""
    with console.display() as display:
        return scheduler.run(plan, display)


def show_dry_run(plan: Plan, *, verbose: bool, as_json: bool) -> None:
    """Print what `show_plan` prints, and for a backend such as verl the process that it would start.

    verbose: print that process as text, too, not only in the JSON document.

    Raises:
        ConfigError: `model.path` names a folder that is not there.
    """
    for path in dict.fromkeys(cell.spec.model.path for cell in plan.cells if not cell.spec.model.wheel):
        if path:
            _check_model(path)
    found = {cell.spec.run_id: backends.get(cell.spec.backend).preview(cell.spec, location()) for cell in plan.cells}
    previews = {run_id: preview for run_id, preview in found.items() if preview}
    show_plan(plan, as_json=as_json, previews=previews)
    if previews and not as_json:
        more = previews_text(previews) if verbose else "each setting of verl: the same with --verbose"
        console.print_text(f"\n{more}")


def show_plan(
    plan: Plan,
    *,
    as_json: bool,
    previews: Mapping[str, Any] = MappingProxyType({}),
    mean_response: float | None = None,
) -> None:
    """Print the runs of `plan` with ids, states and estimated times. Writes nothing, imports no torch.

    previews: run id -> what the JSON document says of the process that would be started. mean_response: the mean length
    of a response in tokens; None means what each task assumes.

    Raises:
        ConfigError: a run's longest response is shorter than `mean_response`.
    """
    if mean_response is not None:
        _check_length(plan, mean_response)
    home = location()
    estimator = estimate.Estimator(home, mean_response)
    runs = [_planned(cell, home, estimator) for cell in plan.cells]
    for run in runs:
        if run["run_id"] in previews:
            run["preview"] = previews[run["run_id"]]
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
    _show_needs(plan)
    _show_costs(plan, estimator)


def _check_length(plan: Plan, mean_response: float) -> None:
    limit = min(cell.spec.train.max_response for cell in plan.cells)
    if not 1 <= mean_response <= limit:
        raise ConfigError(
            f"--mean-length {mean_response:g}: responses have 1 to train.max_response={limit} tokens",
            fix=f"--mean-length {limit // 4 or 1}, or train.max_response={max(2, math.ceil(mean_response))}",
        )


def _show_needs(plan: Plan) -> None:
    """Print the memory and disk that runs of existing models on the local engine need, and what is free here."""
    specs = [cell.spec for cell in plan.cells if estimate.has_needs(cell.spec)]
    if not specs:
        return
    memory, disk = (max(map(size, specs)) / GIB for size in (needs.memory, needs.disk))
    free = needs.free()
    console.print_text(
        f"a run needs about {memory:.1f} GiB of memory ({free.memory / GIB:.1f} GiB are free) and at most "
        f"{disk:.1f} GiB of disk ({free.disk / GIB:.1f} GiB are free in {free.folder})"
    )


def _show_costs(plan: Plan, estimator: estimate.Estimator) -> None:
    """Print the estimated GPU-hours, tokens and disk space of runs on GPUs, and how they were estimated."""
    specs = [cell.spec for cell in plan.cells if estimate.on_gpus(cell.spec)]
    if not specs:
        return
    rows = []
    for spec in specs:
        about = estimator.cost(spec)
        tokens = [f"{count / 1e9:.2f} G" for count in (about.sampled, about.trained)]
        sizes = [f"{size / 2**30:.0f} GiB" for size in (about.checkpoint, about.disk)]
        least, most = (f"{seconds / 3600:,.0f}" for seconds in (about.least, about.most))
        rows.append([spec.run_id, least if least == most else f"{least} to {most}", *tokens, *sizes])
    console.print_text("")
    console.print_table(["run_id", "GPU-hours", "tokens sampled", "trained", "per checkpoint", "disk at most"], rows)
    console.print_text("\n" + "\n".join(dict.fromkeys(line for spec in specs for line in estimator.cost_basis(spec))))


def previews_text(previews: Mapping[str, Mapping[str, Any]]) -> str:
    """Environment and command of each run, in words of the shell: what all runs share once, then what each adds.

    previews: run id -> what `Backend.preview` returns. The command of a single run can be pasted into a shell.
    """
    words = {run_id: _shell_words(preview) for run_id, preview in previews.items()}
    first = next(iter(words.values()))
    all_runs = ", the same in all runs" if len(words) > 1 else ""
    parts = []
    for part, separator in (("environment", "\n"), ("command", " \\\n  ")):
        shared = [word for word in first[part] if all(word in one[part] for one in words.values())]
        parts.append(f"# {part}{all_runs}\n{separator.join(shared)}")
        for run_id, one in words.items():
            if own := [word for word in one[part] if word not in shared]:
                parts.append(f"# {part} of {run_id}\n{separator.join(own)}")
    return "\n\n".join(parts)


def _shell_words(preview: Mapping[str, Any]) -> dict[str, list[str]]:
    variables = [f"{name}={shlex.quote(value)}" for name, value in preview["environment"].items()]
    return {"environment": variables, "command": [shlex.quote(word) for word in preview["command"]]}


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
        **({"cost": _cost(spec, estimator)} if estimate.on_gpus(spec) else {}),
        **(_needs(spec) if estimate.has_needs(spec) else {}),
        "spec": spec.to_dict(),
    }


def _needs(spec: RunSpec) -> dict[str, int]:
    return {"memory_bytes": round(needs.memory(spec)), "disk_bytes": round(needs.disk(spec))}


def _cost(spec: RunSpec, estimator: estimate.Estimator) -> dict[str, Any]:
    return {**estimator.cost(spec).to_json(), "basis": "; ".join(estimator.cost_basis(spec))}


def _shown(metrics: dict[str, float]) -> list[str]:
    evals = [value for name, value in metrics.items() if name.startswith("eval/") and name.endswith("/pass_at_1")]
    accuracy = metrics.get("train/accuracy")
    return [
        "-" if accuracy is None else f"{accuracy:.3f}",
        "-" if not evals else f"{sum(evals) / len(evals):.3f}",
    ]
