"""A run may begin at RUN@STEP: its first attempt is a copy of the records and the state of RUN up to STEP.

A fork begins so (`mcpo fork`), and steps that are trained again for a comparison do (`mcpo verify`); from there the run
is resumed like any other. Branches and observations begin at a state, too, and leave their records beside the run.
"""

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
from mcpo_cli.runs import catalog, folders, prompts, provenance
from mcpo_cli.runs.attempts import Attempt, owned
from mcpo_cli.runs.journal import Journal, Kind, read_json

STATES = ("method", "sampler")
"""Parts of a state that a run with another method, or another sampler, does not continue from."""


def check_backend(spec: RunSpec) -> None:
    """Raise ConfigError unless a run can begin at the states that a run of `spec` saves."""
    if spec.backend != "local":
        raise ConfigError(
            f"{spec.run_id} was trained by {spec.backend}: no run can begin at its states, which all ranks hold "
            "together, and how its rollout engine batches requests decides the bits of a step",
            fix="a run of backend=local",
        )


def kept(run_dir: Path) -> list[int]:
    """The global steps whose states a run of backend=local has kept, in order."""
    return [*folders.checkpoints(run_dir)]


def check_origin(spec: RunSpec) -> None:
    """Raise ConfigError unless the fork `spec` has a state to begin from: its own, or one kept by the other run."""
    if max(kept(location() / "runs" / spec.run_id), default=0) < forking.parse(spec.fork)[1]:
        origin(spec)


def origin(spec: RunSpec) -> catalog.Run:
    """The run that the fork `spec` begins from; it has kept the state at the fork.

    Raises:
        ConfigError: that run does not exist, has not kept the state, or cannot be continued by `spec`.
    """
    run_id, step = forking.parse(spec.fork)
    parent = catalog.find(location(), run_id)
    forking.check_continues(parent.spec, spec)
    steps, fork_steps = parent.spec.train.steps, spec.train.steps
    # Both have steps after the fork.
    usable = [kept_step for kept_step in kept(parent.folder) if 0 < kept_step < min(steps, fork_steps)]
    if step in usable:
        return parent
    reason = f"{run_id} has kept no state of step {step}"
    if step >= min(steps, fork_steps):
        reason = f"{run_id} has {steps} global steps, the fork {fork_steps}; both must have steps after the fork"
    raise ConfigError(
        f"--at {step}: {reason}; steps whose states are kept: {', '.join(map(str, usable)) or 'none'}",
        fix=f"--at {min(usable, key=lambda kept_step: abs(kept_step - step))}" if usable else _kept_again(parent, step),
    )


def _kept_again(parent: catalog.Run, step: int) -> str | None:
    """The commands that train a run once more, so that it keeps states up to `step`; None if it has a single step."""
    steps = parent.spec.train.steps
    if steps == 1 or not (command := parent.origin.get("command")):
        return None
    interval = min(step, steps - 1)
    count = math.ceil(steps / interval) + 1
    words = shlex.join(word for word in shlex.split(command) if not word.startswith("compute.checkpoint"))
    keeping = f"compute.checkpoint_every={interval} compute.checkpoints={count} compute.checkpoints_after={count}"
    return f"mcpo runs delete {parent.spec.run_id} && {words} {keeping}"


def fork(folder: Path, spec: RunSpec) -> int:
    """Make the attempt that begins the fork `spec` in `folder`; returns the step from which the next attempt continues.

    Earlier attempts are void. The caller holds the fork's lock.

    Raises:
        ConfigError: see `origin`.
        RunFailed: the other run's records are damaged.
    """
    step = forking.parse(spec.fork)[1]
    copy(origin(spec).folder, step, Attempt(folder, spec, 0))
    return step


def copy(run_dir: Path, step: int, attempt: Attempt) -> None:
    """Fill an attempt with the records and the state that the run in `run_dir` has up to `step`, and end it.

    The state of a method, or of a sampler, is not copied if the attempt's run has another one.

    Raises:
        RunFailed: the records are damaged; the attempt is removed.
    """
    try:
        _copy_rows(Journal(run_dir), step, attempt)
        old, new = (read_json(folder / "spec.json") for folder in (run_dir, attempt.folder))
        parts = [part for part in STATES if old.get(part, {}).get("name") != new.get(part, {}).get("name")]
        folders.copy_checkpoint(run_dir, step, attempt.folder, without=parts)
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
    files = {source.attempts()[0] / provenance.RECORD: attempt.folder}
    files |= {source.run_dir / name: attempt.folder.parent for name in (SOURCES, prompts.FILE)}
    with writing(attempt.folder):
        for path, folder in files.items():
            if path.exists():
                shutil.copyfile(path, folder / path.name)


def is_done(folder: Path) -> bool:
    """True if the last attempt in a folder of records has ended well."""
    attempts = Journal(folder).attempts()
    return bool(attempts) and read_json(attempts[-1] / "status.json")["state"] == "done"


def record_once(folder: Path, spec: RunSpec, record: Callable[[Attempt], None]) -> None:
    """Let `record` write into a new attempt in `folder`, unless one is done there; a killed one is repeated."""
    with owned(folder):
        if is_done(folder):
            return
        attempt = Attempt(folder, spec, 0)
        provenance.write(attempt.folder, provenance.parent_command())
        try:
            record(attempt)
        except BaseException as error:
            attempt.end("failed", str(error))
            raise
        attempt.end("done")
