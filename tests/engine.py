"""Real runs of the local engine that take seconds, and the parts of their records that must be equal.

Workers start without loading their libraries again, because there are more than a hundred of them. A server process
loads the engine once and forks a real worker for each life: the process, its files and its fate are those of
`python -m mcpo_cli.scheduling.worker`, without the first seconds of imports.
"""

import importlib
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from mcpo_cli.backends.local import BACKEND, train
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import RunFailed
from mcpo_cli.runs.attempts import Attempt, missing
from mcpo_cli.runs.journal import Journal, Kind, checksum, read_json, read_lines, write_json
from mcpo_cli.scheduling import worker

LOADED = (train, worker)
"""Modules that the server has loaded when it forks."""
PATIENCE = 300.0
METHODS = {"dapo": ["method=dapo"], "mcpo": ["method=mcpo", "method.anchor=previous_step", "method.delta=0"]}
PROBES = ["probe.gradients_every=1", "probe.gradient_prompts=2", "probe.panel=4", "probe.panel_every=2"]
NO_PROBES = ["probe.every=0", "probe.gradients_every=0", "probe.panel_every=0"]
KINDS: tuple[Kind, ...] = ("groups", "eval", "rerolls", "mini_batches", "gradients")

POINTS = {
    "warm-up": ("mcpo_cli.backends.local.initial_policy", "cross_entropy"),
    "sampling": ("mcpo_cli.backends.local.train", "Trainer.sample", "sample_groups"),
    "gradient step": ("mcpo_cli.backends.local.update", "log_probs"),
    "gradient measurement": ("mcpo_cli.backends.local.gradients", "likelihood_direction"),
    "evaluation": ("mcpo_cli.backends.local.train", "Trainer.sample", "evaluate"),
    "checkpoint write": ("mcpo_cli.backends.local.checkpoint", "save_file"),
    "checkpoint rename": ("mcpo_cli.runs.folders", "write_json"),
}
"""Where a worker can kill itself: just before a call of a function that the engine calls at a critical moment.

Module and function; and, if several functions call it, the one whose calls count.
"""


def spec_of(method: str, probes: Sequence[str] = PROBES, *, made: bool = False) -> RunSpec:
    """A run of seconds; with `made` its base policy is not the shipped one: it is warmed up, for most of the time."""
    # Two rollouts at a low temperature: some prompts are mastered even by a policy this weak.
    shape = [
        "train.prompts=32",
        "train.mini_batch=8",
        "train.rollouts=2",
        "train.temperature=0.3",
        "train.max_refills=200",
    ]
    quick = ["scale=smoke", "train.steps=4", "train.lr=1e-3", "compute.checkpoint_every=2"]
    return load([*quick, *shape, *METHODS[method], *probes, f"compute.shipped_base={'false' if made else 'true'}"])[0]


Clock = Callable[[], float]


def begin(
    home: Path, spec: RunSpec, *dies: Any, largest: int = resource.RLIM_INFINITY, clock: Clock = time.time
) -> ForkServerProcess:
    """A worker of `spec` below `home` that dies at `dies` (see `POINTS`) and can write files of `largest` bytes.

    clock: a function of a module, which returns the time.
    """
    folder = home / "runs" / spec.run_id
    if not (folder / "spec.json").exists():
        write_json(folder / "spec.json", spec.to_dict())
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_live, args=(str(home), spec.run_id, dies, largest, clock))
    process.start()
    return process


def _live(home: str, run_id: str, dies: tuple[Any, ...], largest: int, clock: Clock) -> None:
    time.time = clock
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
    # Until the worker handles SIGINT, the signal ends it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ |= {"MCPO_HOME": home, "OMP_NUM_THREADS": "1"}
    log = os.open(f"{home}/runs/{run_id}/worker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if dies:
        die_at(*dies)
    sys.exit(worker.work(run_id, [__name__]))


def die_at(point: str, call: int) -> None:
    """Replace the function of `point` by one that ends the process at its `call`-th call."""
    module, name, *callers = POINTS[point]
    owner: Any = importlib.import_module(module)
    *classes, name = name.split(".")
    for one in classes:
        owner = getattr(owner, one)
    original, calls = getattr(owner, name), 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += not callers or sys._getframe(1).f_code.co_name in callers
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    setattr(owner, name, counted)


def end(process: ForkServerProcess) -> int:
    """Wait for the worker; returns its exit code, negative for a signal."""
    process.join(PATIENCE)
    assert process.exitcode is not None, "it did not end"
    return process.exitcode


def work(home: Path, spec: RunSpec, *dies: Any, **more: Any) -> int:
    """Run a worker to its end; returns the exit code. See `begin`."""
    return end(begin(home, spec, *dies, **more))


def trained(home: Path, spec: RunSpec) -> Journal:
    """The journal of a whole run below `home`, which this process trains."""
    attempt = Attempt(home / "runs" / spec.run_id, spec, 0)
    BACKEND.run(spec, attempt, lambda: False)
    attempt.end("done")
    return Journal(attempt.folder.parent)


def metrics(journal: Journal) -> list[tuple[int, dict[str, float]]]:
    """Each step with its metrics, except those of the clock."""
    clocks = ("perf/", "system/", "cost/seconds")
    return [
        (row["step"], {name: value for name, value in row["metrics"].items() if not name.startswith(clocks)})
        for row in journal.steps()
    ]


def records(home: Path, spec: RunSpec) -> dict[str, Any]:
    """All records that must not differ: metrics without those of the clock, rows of every kind, final weights."""
    folder = home / "runs" / spec.run_id
    journal = Journal(folder)
    assert not missing(folder, spec)
    policy = journal.attempts()[-1] / "policy" / "model.safetensors"
    rows = {kind: {step: list(read_lines(path)) for step, path in journal.files(kind).items()} for kind in KINDS}
    return {"steps": metrics(journal), **rows, "policy": checksum(policy)}


def differences(expected: dict[str, Any], found: dict[str, Any]) -> tuple[int, int]:
    """Records of `expected` that `found` lacks, and records of `found` that differ: (lost, wrong)."""
    lost = wrong = 0
    for kind, rows in expected.items():
        if kind == "policy":
            wrong += found[kind] != rows
            continue
        before, after = dict(rows), dict(found[kind])
        lost += len(before.keys() - after.keys()) + sum(
            max(0, len(before[step]) - len(after[step])) for step in before.keys() & after.keys()
        )
        wrong += sum(before.get(step) != row for step, row in after.items()) + len(found[kind]) - len(after)
    return lost, wrong


def torn(run_dir: Path) -> int:
    """Files of a run that a reader would take for complete although they are cut short or empty."""
    found = 0
    for path in run_dir.glob("attempt_*/*/step_*.jsonl"):
        content = path.read_bytes()
        found += not content.endswith(b"\n") or not list(read_lines(path))
    for path in run_dir.glob("**/*.json"):
        if not any(part.startswith(".") for part in path.relative_to(run_dir).parts):
            # An attempt that stopped at its beginning has no sums yet: `{}` and its checksum, which is complete.
            found += not _is_whole(path)
    return found


def _is_whole(document: Path) -> bool:
    try:
        read_json(document)
    except RunFailed:
        return False
    return True
