"""Show the runs of a plan instead of starting them: ids, states, expected time and cost, and the processes to start."""

import shlex
from collections.abc import Mapping
from typing import Any

from mcpo_cli import backends
from mcpo_cli.backends import feasible, local
from mcpo_cli.commands import console
from mcpo_cli.config.plan import Plan
from mcpo_cli.machine import GIB
from mcpo_cli.scheduling import start
from mcpo_cli.scheduling.forecast import Expected, Forecast, forecast


def show_plan(plan: Plan, *, verbose: bool, as_json: bool) -> None:
    """See `show`."""
    show(forecast(plan), verbose=verbose, as_json=as_json)


def show(expected: Forecast, *, verbose: bool, as_json: bool) -> None:
    """Print the runs of a plan, and of a backend such as verl the processes that it would start.

    Writes nothing, imports no torch.

    verbose: print those processes also as text, not only in the JSON document.

    Raises:
        ConfigError: a run cannot be trained (see `feasible.check`).
    """
    feasible.check(expected.unfinished)
    runs, specs = expected.in_table, [cell.spec for cell in expected.plan.cells]
    previews = {spec.run_id: backends.get(spec.backend).preview(spec, expected.home) for spec in specs}
    previews = {run_id: preview for run_id, preview in previews.items() if preview}
    if as_json:
        _print_json(expected, previews)
        return
    _print_runs(expected, runs)
    for caution in start.cautions(expected):
        console.talk(f"warning: {caution}")
    _print_needs(runs)
    _print_costs(runs)
    if previews and not verbose:
        console.print_text("\neach setting of verl: add --verbose")
    for run_id, preview in previews.items() if verbose else ():
        console.print_text(f"\n# {run_id}\n{preview_text(preview)}")


def _print_json(expected: Forecast, previews: Mapping[str, Any]) -> None:
    seconds = round(expected.seconds, 1)
    about = {"seconds_left": seconds, "parallel": expected.parallel, "basis": expected.basis}
    runs = [run.to_json() for run in expected.in_table]
    runs = [run | ({"preview": previews[run["run_id"]]} if run["run_id"] in previews else {}) for run in runs]
    head = {"suite": expected.plan.suite, "home": str(expected.home), "command": expected.plan.command}
    console.print_json({**head, "estimate": about, "runs": runs})


def _print_runs(expected: Forecast, runs: list[Expected]) -> None:
    rows = [
        [
            run.cell.spec.run_id,
            run.cell.arm,
            run.cell.spec.model.name,
            str(run.cell.spec.seed),
            run.state,
            console.duration(run.seconds_left),
        ]
        for run in runs
    ]
    console.print_table(["run_id", "arm", "model", "seed", "state", "time left"], rows)
    done = sum(run.state == "done" for run in runs)
    rest = f"about {console.duration(expected.seconds)} left, {expected.parallel} at a time ({expected.basis})"
    console.print_text(f"\n{done} of {len(rows)} runs done; {rest}\nstart or continue: {expected.plan.command}")


def _print_needs(runs: list[Expected]) -> None:
    """Print the memory and disk that runs of existing models on the local engine need, and what is free here."""
    memory, disk = (max(getattr(run.cost, name) or 0.0 for run in runs) / GIB for name in ("memory", "disk"))
    if not memory:
        return
    free = local.free()
    console.print_text(
        f"a run needs about {memory:.1f} GiB of memory ({free.memory / GIB:.1f} GiB are free) and about "
        f"{disk:.1f} GiB of disk ({free.disk / GIB:.1f} GiB are free in {free.folder})"
    )


def _print_costs(runs: list[Expected]) -> None:
    """Print the estimated GPU-hours, tokens and disk space of runs on GPUs, and how they were estimated."""
    costs = {run.cell.spec.run_id: run.cost.gpus for run in runs if run.cost.gpus}
    if not costs:
        return
    rows = []
    for run_id, cost in costs.items():
        least, most = (f"{seconds / 3600:,.0f}" for seconds in (cost.least, cost.most))
        tokens = [f"{count / 1e9:.2f} G" for count in (cost.sampled, cost.trained)]
        sizes = [f"{size / GIB:.0f} GiB" for size in (cost.checkpoint, cost.disk)]
        rows.append([run_id, least if least == most else f"{least} to {most}", *tokens, *sizes])
    console.print_text("")
    console.print_table(["run_id", "GPU-hours", "tokens sampled", "trained", "per checkpoint", "disk"], rows)
    console.print_text("\n" + "\n".join(dict.fromkeys(line for cost in costs.values() for line in cost.basis)))


def preview_text(preview: Mapping[str, Any]) -> str:
    """Environment and command of a run (see `Backend.preview`) as words of the shell, which can be pasted into one."""
    environment = "\n".join(f"{name}={shlex.quote(value)}" for name, value in preview["environment"].items())
    command = " \\\n  ".join(map(shlex.quote, preview["command"]))
    return f"# environment\n{environment}\n\n# command\n{command}"
