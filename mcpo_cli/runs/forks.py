"""The first attempt of a fork: the records and the state of the run that it is forked from, up to the fork."""

import math
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from mcpo_cli.config import forking
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import location, writing
from mcpo_cli.records import SOURCES
from mcpo_cli.runs import catalog
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import Journal, Kind

Kept = Callable[[Path], list[int]]
"""The global steps whose states a run's folder keeps."""
CopyState = Callable[[Path, int, Attempt], None]
"""Copies the state that a run's folder keeps of a step into an attempt."""


def origin(spec: RunSpec, kept: Kept) -> catalog.Run:
    """The run that the fork `spec` begins from; it has kept the state at the fork.

    Raises:
        ConfigError: that run does not exist, has not kept the state, or cannot be continued by `spec`.
    """
    run_id, step = forking.parse(spec.fork)
    parent = catalog.find(location(), run_id)
    forking.check(parent.spec, spec)
    steps, others = parent.spec.train.steps, spec.train.steps
    # Both have steps after the fork.
    usable = [one for one in kept(parent.folder) if 0 < one < min(steps, others)]
    if step in usable:
        return parent
    why = f"{run_id} has kept no state of step {step}"
    if step >= min(steps, others):
        why = f"{run_id} has {steps} global steps, the fork {others}; both must have steps after the fork"
    raise ConfigError(
        f"--at {step}: {why}; steps whose states are kept: {', '.join(map(str, usable)) or 'none'}",
        fix=f"--at {min(usable, key=lambda one: abs(one - step))}" if usable else _kept_again(parent, step),
    )


def _kept_again(parent: catalog.Run, step: int) -> str | None:
    """The commands that train a run once more, so that it keeps states up to `step`; None if it has a single step."""
    steps = parent.spec.train.steps
    if steps == 1 or not (command := parent.origin.get("command")):
        return None
    every = min(step, steps - 1)
    count = math.ceil(steps / every) + 1
    others = shlex.join(word for word in shlex.split(command) if not word.startswith("compute.checkpoint"))
    keeping = f"compute.checkpoint_every={every} compute.checkpoints={count} compute.checkpoints_after={count}"
    return f"mcpo runs delete {parent.spec.run_id} && {others} {keeping}"


def begin(folder: Path, spec: RunSpec, kept: Kept, copy_state: CopyState) -> int:
    """Make the attempt that begins the fork `spec` in `folder`; returns the step from which the next attempt continues.

    Earlier attempts are void. The caller holds the fork's lock.

    Raises:
        ConfigError: see `origin`.
        RunFailed: the other run's records are damaged.
    """
    step = forking.parse(spec.fork)[1]
    copy(origin(spec, kept).folder, step, Attempt(folder, spec, 0), copy_state)
    return step


def copy(run_dir: Path, step: int, attempt: Attempt, copy_state: CopyState) -> None:
    """Fill an attempt with the records and the state that the run in `run_dir` has up to `step`, and end it.

    Raises:
        RunFailed: those records are damaged; the attempt is removed.
    """
    try:
        _copy_rows(Journal(run_dir), step, attempt)
        copy_state(run_dir, step, attempt)
        attempt.durable(step)
    except BaseException:
        attempt.journal.close()
        shutil.rmtree(attempt.folder)
        raise
    attempt.end("interrupted", f"continues {run_dir.name} after step {step}")


def _copy_rows(source: Journal, step: int, attempt: Attempt) -> None:
    for row in source.steps():
        if row["step"] <= step:
            attempt.journal.step(row)
    for kind in get_args(Kind):
        for at, path in source.files(kind).items():
            if at <= step:
                attempt.journal.rows(kind, at, source.read(path))
    provenance = source.attempts()[0] / "provenance.json"
    with writing(attempt.folder):
        if provenance.exists():
            shutil.copyfile(provenance, attempt.folder / provenance.name)
        if (sources := source.run_dir / SOURCES).exists():
            shutil.copyfile(sources, attempt.folder.parent / SOURCES)
