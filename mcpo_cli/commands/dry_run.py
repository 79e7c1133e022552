"""Show the runs of a plan instead of starting them: ids, states, expected time and cost, and the processes to start."""

import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from mcpo_cli import backends
from mcpo_cli.backends import feasible, local
from mcpo_cli.commands import console
from mcpo_cli.commands.reply import Part, Reply, table
from mcpo_cli.config.plan import Plan
from mcpo_cli.config.schema import Train
from mcpo_cli.home import location
from mcpo_cli.machine import GIB
from mcpo_cli.scheduling.estimate import Forecast, forecast

WILD = 0.05
"""The least learning rate that gets a warning."""
LONG = 6 * 3600.0
"""A plan that takes more seconds than this gets a warning."""


def reply(plan: Plan, *, verbose: bool, mean_response: float | None = None) -> Reply:
    """The runs of `plan`, and of a backend such as verl the processes that it would start.

    Writes nothing, imports no torch.

    Args:
        verbose: show those processes also as text, not only in the JSON document.
        mean_response: the mean length of a response in tokens; None means what each task assumes.

    Raises:
        ConfigError: `model.path` names a folder that does not exist, a run's longest response is shorter than
            `mean_response`, or a run cannot be trained (see `feasible.check`).
    """
    home = location()
    expected = forecast(plan, home, mean_response)
    states = {run["run_id"]: run["state"] for run in expected.runs}
    feasible.check(cell.spec for cell in plan.cells if states[cell.spec.run_id] != "done")
    previews = {cell.spec.run_id: backends.get(cell.spec.backend).preview(cell.spec, home) for cell in plan.cells}
    previews = {run_id: preview for run_id, preview in previews.items() if preview}
    about = {"seconds_left": round(expected.seconds, 1), "parallel": expected.parallel, "basis": expected.basis}
    runs = [run | ({"preview": previews[run["run_id"]]} if run["run_id"] in previews else {}) for run in expected.runs]
    head = {"suite": plan.suite, "home": str(home), "command": plan.command}
    return Reply({**head, "estimate": about, "runs": runs}, _page(plan, expected, previews, verbose=verbose))


def _page(plan: Plan, expected: Forecast, previews: Mapping[str, Any], *, verbose: bool) -> Iterator[Part]:
    yield from _runs(plan, expected)
    for caution in cautions(plan, expected):
        yield partial(console.talk, f"warning: {caution}")
    yield from _needs(expected)
    yield from _costs(expected)
    if previews:
        yield f"\n{previews_text(previews) if verbose else 'each setting of verl: add --verbose'}"


def cautions(plan: Plan, expected: Forecast) -> Iterator[str]:
    """Warnings about settings that are allowed but probably not meant."""
    yield from plan.equal_arms
    if wild := sorted({cell.spec.train.lr for cell in plan.cells if cell.spec.train.lr >= WILD}):
        yield (
            f"train.lr={wild[-1]:g}: AdamW changes every weight by about that much in a gradient step, which destroys "
            f"a policy; the default is {Train.lr:g}"
        )
    if expected.seconds > LONG:
        yield (
            f"about {console.duration(expected.seconds)} left for {len(plan.cells)} runs, {expected.parallel} at a "
            "time; Ctrl-C stops them, and the same command continues"
        )


def _runs(plan: Plan, expected: Forecast) -> Iterator[Part]:
    columns = ["run_id", "arm", "model", "seed", "state"]
    rows = [[*(str(run[column]) for column in columns), console.duration(run["seconds_left"])] for run in expected.runs]
    yield table([*columns, "time left"], rows)
    done = sum(run["state"] == "done" for run in expected.runs)
    rest = f"about {console.duration(expected.seconds)} left, {expected.parallel} at a time ({expected.basis})"
    yield f"\n{done} of {len(rows)} runs done; {rest}\nstart or continue: {plan.command}"


def _needs(expected: Forecast) -> Iterator[str]:
    """The memory and disk that runs of existing models on the local engine need, and what is free on this machine."""
    runs = [run for run in expected.runs if "memory_bytes" in run]
    if not runs:
        return
    memory, disk = (max(run[key] for run in runs) / GIB for key in ("memory_bytes", "disk_bytes"))
    free = local.free()
    yield (
        f"a run needs about {memory:.1f} GiB of memory ({free.memory / GIB:.1f} GiB are free) and about "
        f"{disk:.1f} GiB of disk ({free.disk / GIB:.1f} GiB are free in {free.folder})"
    )


def _costs(expected: Forecast) -> Iterator[Part]:
    """The estimated GPU-hours, tokens and disk space of runs on GPUs, and how they were estimated."""
    rows = []
    for run_id, cost in expected.costs.items():
        least, most = (f"{seconds / 3600:,.0f}" for seconds in (cost.least, cost.most))
        tokens = [f"{count / 1e9:.2f} G" for count in (cost.sampled, cost.trained)]
        sizes = [f"{size / GIB:.0f} GiB" for size in (cost.checkpoint, cost.disk)]
        rows.append([run_id, least if least == most else f"{least} to {most}", *tokens, *sizes])
    if rows:
        yield ""
        yield table(["run_id", "GPU-hours", "tokens sampled", "trained", "per checkpoint", "disk"], rows)
        yield "\n" + "\n".join(dict.fromkeys(line for cost in expected.costs.values() for line in cost.basis))


def previews_text(previews: Mapping[str, Mapping[str, Any]]) -> str:
    """Environment and command of each run, as words of the shell: first those that all runs share, then each run's own.

    previews: run id -> what `Backend.preview` returns. The command of a single run can be pasted into a shell.
    """
    words = {
        run_id: {
            "environment": [f"{name}={shlex.quote(value)}" for name, value in preview["environment"].items()],
            "command": [shlex.quote(word) for word in preview["command"]],
        }
        for run_id, preview in previews.items()
    }
    first = next(iter(words.values()))
    all_runs = ", the same in all runs" if len(words) > 1 else ""
    parts = []
    for part, separator in (("environment", "\n"), ("command", " \\\n  ")):
        shared = [word for word in first[part] if all(word in run[part] for run in words.values())]
        parts.append(f"# {part}{all_runs}\n{separator.join(shared)}")
        for run_id, run in words.items():
            if own := [word for word in run[part] if word not in shared]:
                parts.append(f"# {part} of {run_id}\n{separator.join(own)}")
    return "\n\n".join(parts)
