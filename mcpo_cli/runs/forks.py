"""The attempt that begins a fork: the records and the state of the run that it is forked from, up to the fork."""

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

CopyState = Callable[[Path, int, Attempt], None]
"""Copies the state that a run's folder keeps of a step into an attempt."""


def begin(folder: Path, spec: RunSpec, kept: Callable[[Path], list[int]], copy_state: CopyState) -> int:
    """Make an attempt of the fork `spec` in `folder` that begins it; returns the step that the next one goes on from.

    Attempts before it are void. The caller holds the fork's lock.

    Raises:
        ConfigError: the other run is not there, has no state of that step, or is not one that `spec` can continue.
        RunFailed: its records are damaged.
    """
    run_id, step = forking.place(spec.fork)
    parent = catalog.find(location(), run_id)
    forking.check(parent.spec, spec)
    if step not in (steps := kept(parent.folder)):
        listed = ", ".join(map(str, steps)) or "none"
        raise ConfigError(
            f"{run_id} has kept no state of step {step} (kept: {listed})",
            fix=f"--at {max(steps)}"
            if steps
            else f"rm -r {parent.folder}  (then train it with "
            f"compute.checkpoint_every={step} compute.checkpoints=1000 compute.checkpoints_after=1000)",
        )
    copy(parent.folder, step, Attempt(folder, spec, 0), copy_state)
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
