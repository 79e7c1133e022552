"""Show the runs of a plan instead of starting them: ids, states, expected time and cost, and the processes to start."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from mcpo_cli import backends
from mcpo_cli.backends import feasible, local
from mcpo_cli.commands import console
from mcpo_cli.commands.reply import Part, Reply, table
from mcpo_cli.config.cost import Estimate
from mcpo_cli.config.plan import Plan
from mcpo_cli.config.schema import Model, RunSpec
from mcpo_cli.errors import ConfigError, StoreError
from mcpo_cli.machine import GIB
from mcpo_cli.scheduling.forecast import Expected, Forecast, forecast


def show_plan(plan: Plan, *, verbose: bool) -> Reply:
    """The runs of a plan, and the processes that a backend such as verl would start.

    Writes nothing, imports no torch.

    verbose: show these processes also as text, not only in the JSON document.

    Raises:
        ConfigError: a run cannot be trained (see `feasible.check`).
    """
    outlook = forecast(plan)
    folders = feasible.check(outlook.unfinished)
    documents = []
    for run in outlook.in_table:
        preview = backends.get(run.spec.backend).preview(run.spec, outlook.home)
        documents.append(run.to_json() | ({"preview": preview} if preview else {}))
    previews = {document["run_id"]: document["preview"] for document in documents if "preview" in document}
    estimate = {"seconds_left": round(outlook.seconds, 1), "parallel": outlook.parallel, "basis": outlook.basis}
    head = {"suite": plan.suite, "home": str(outlook.home), "command": plan.command, "estimate": estimate}
    return Reply({**head, "runs": documents}, _page(outlook, folders, previews, verbose=verbose))


def _page(
    outlook: Forecast, folders: Mapping[Model, Path | None], previews: Mapping[str, Any], *, verbose: bool
) -> Iterator[Part]:
    runs = outlook.in_table
    yield from _runs(outlook, runs)
    for caution in outlook.cautions:
        yield partial(console.talk, f"warning: {caution}")
    yield from _shape([run.spec for run in runs if run.spec.model.path])
    yield from _needs([run.estimate for run in runs if run.estimate.existing], folders)
    yield from _refusal([run for run in outlook.unfinished if run.spec.backend == "local"])
    yield from _costs(runs)
    if previews and not verbose:
        yield "\neach setting of verl: add --verbose"
    for run_id, preview in previews.items() if verbose else ():
        yield f"\n# {run_id}\n{preview_text(preview)}"


def _runs(outlook: Forecast, runs: list[Expected]) -> Iterator[Part]:
    rows = [
        [
            run.spec.run_id,
            run.planned.arm,
            run.spec.model.name,
            str(run.spec.seed),
            run.state,
            console.duration(run.seconds_left),
        ]
        for run in runs
    ]
    yield table(["run_id", "arm", "model", "seed", "state", "time left"], rows)
    done = sum(run.state == "done" for run in runs)
    time_left = f"about {console.duration(outlook.seconds)} left, {outlook.parallel} at a time ({outlook.basis})"
    yield f"\n{done} of {len(rows)} runs done; {time_left}\nstart or continue: {outlook.plan.command}"


def _shape(specs: list[RunSpec]) -> Iterator[str]:
    """What decides how long runs of existing models are and what they can learn."""
    if not specs:
        return

    def values(name: str) -> str:
        return " or ".join(dict.fromkeys(f"{getattr(spec.train, name):g}" for spec in specs))

    yield (
        f"a run: {values('steps')} global steps of {values('prompts')} prompts x {values('rollouts')} rollouts, "
        f"prompts of up to {values('max_prompt')} and responses of up to {values('max_response')} tokens, "
        f"learning rate {values('lr')}"
    )


def _needs(runs: list[Estimate], folders: Mapping[Model, Path | None]) -> Iterator[str]:
    """The memory and disk that runs of existing models on the local engine need, and what is free on this machine.

    folders: see `feasible.check`.
    """
    if not runs:
        return
    memory, disk = max(run.memory for run in runs) / GIB, max(run.disk for run in runs) / GIB
    free, specs = local.free(), [run.spec for run in runs]
    models = {spec.model.path: spec.model for spec in specs}
    for model in models.values():
        if model in folders and folders[model] is None:
            yield f"the model {model.name} is not on this machine: the first run fetches it from {model.path}"
    yield (
        f"a run needs about {memory:.1f} GiB of memory ({free.memory / GIB:.1f} GiB are free) and about "
        f"{disk:.1f} GiB of disk ({free.disk / GIB:.1f} GiB are free in {free.folder})"
    )
    # One look at the processor for each format, not for each run.
    yield from map(local.formats, {spec.compute.dtype: spec for spec in specs if local.on_cpu(spec)}.values())


def _refusal(unfinished: Iterable[Estimate]) -> Iterator[Part]:
    """A warning if a start on the local engine would be refused now."""
    try:
        for run in unfinished:
            local.check_room(run)
    except (ConfigError, StoreError) as error:
        yield partial(console.talk, f"warning: a start would be refused: {error.message}; fix: {error.fix}")


def _costs(runs: list[Expected]) -> Iterator[Part]:
    """The estimated GPU-hours, tokens and disk space of runs on GPUs."""
    costs = {run.spec.run_id: run.gpus for run in runs if run.gpus}
    if not costs:
        return
    rows = []
    for run_id, gpus in costs.items():
        tokens = [_count(count) for count in (gpus.sampled, gpus.trained)]
        rows.append(
            [run_id, _time(gpus.seconds), _size(gpus.memory), *tokens, _size(gpus.checkpoint), _size(gpus.disk)]
        )
    yield ""
    yield table(
        ["run_id", "GPU time", "least memory per GPU", "tokens sampled", "trained", "per checkpoint", "disk"], rows
    )
    seconds, disk = sum(gpus.seconds for gpus in costs.values()), sum(gpus.disk for gpus in costs.values())
    if len(costs) > 1:
        yield f"\nall {len(costs)}: {_time(seconds)} of GPU time, {_size(disk)} of disk"
    yield "\nnot checked before a start: GPUs, memory, and what is installed (mcpo doctor)"


def _time(seconds: float) -> str:
    """Time of a GPU: hours, or minutes below one hour."""
    return f"about {seconds / 3600:,.0f} h" if seconds >= 3600 else f"about {seconds / 60:.2g} min"


def _count(tokens: float) -> str:
    return f"{tokens / 1e9:,.2f} G" if tokens >= 1e7 else f"{tokens / 1e3:,.1f} k"


def _size(count: float) -> str:
    """A number of bytes in GiB, or in MiB below one GiB."""
    return f"{count / GIB:,.0f} GiB" if count >= GIB else f"{count / GIB * 1024:.0f} MiB"


def preview_text(preview: Mapping[str, Any]) -> str:
    """Environment and command of a run (see `Backend.preview`) as words of the shell, which can be pasted into one."""
    environment = "\n".join(f"{name}={shlex.quote(value)}" for name, value in preview["environment"].items())
    command = " \\\n  ".join(map(shlex.quote, preview["command"]))
    return f"# environment\n{environment}\n\n# command\n{command}"
