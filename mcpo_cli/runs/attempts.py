"""Attempts and states of a run. `done` is proven from the records, never taken from a file that says so."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import RunFailed
from mcpo_cli.records import State, Status
from mcpo_cli.redaction import redact
from mcpo_cli.runs.journal import SUMS, Journal, JournalWriter, read_json, seal, write_json, writing

RESERVE = ".reserve"
RESERVE_BYTES = 1 << 16
"""Room that a disk keeps for the last words of an attempt: a row begun, the checksums, why it failed."""


class Busy(RunFailed):
    """Another process is at work on this run or evaluation."""


class Attempt:
    """One try at one run, from `start_step` on: its folder, its journal and its status.

    Raises:
        RunFailed: the disk takes no more; so does every method that writes.
    """

    def __init__(self, run_dir: Path, spec: RunSpec, start_step: int) -> None:
        for earlier in Journal(run_dir).attempts():
            # It was killed: nobody writes there any more.
            if not (earlier / SUMS).exists():
                (earlier / RESERVE).unlink(missing_ok=True)
                seal(earlier)
        number = 1 + max((int(path.name.removeprefix("attempt_")) for path in run_dir.glob("attempt_*")), default=0)
        self.folder = run_dir / f"attempt_{number}"
        with writing(self.folder):
            self.folder.mkdir(parents=True)
            # Random, so that no disk stores it in less.
            (self.folder / RESERVE).write_bytes(os.urandom(RESERVE_BYTES))
        write_json(self.folder / "spec.json", spec.to_dict())
        now = time.time()
        self.status = Status(
            state="running", start_step=start_step, durable_step=start_step, pid=os.getpid(), started=now, updated=now
        )
        self._write_status()
        self.journal = JournalWriter(self.folder)

    def durable(self, step: int) -> None:
        """A checkpoint now covers everything up to `step`."""
        self.status["durable_step"] = step
        self._write_status()

    def phase(self, text: str) -> None:
        """What the run does now, for people who watch it."""
        self.status["phase"] = text
        self._write_status()

    def end(self, state: State, error: str | None = None) -> None:
        """Close the attempt. `error`: the reason in one line."""
        (self.folder / RESERVE).unlink(missing_ok=True)
        try:
            self.journal.close()
            seal(self.folder)
        except RunFailed:
            # Of a run that is done nothing may be missing; another one computes again what its disk did not take.
            if state == "done":
                raise
        self.status["state"] = state
        if error is not None:
            self.status["error"] = redact(error)
        self._write_status()

    def _write_status(self) -> None:
        self.status["updated"] = time.time()
        write_json(self.folder / "status.json", self.status)


def give_up(run_dir: Path, pid: int, error: str) -> None:
    """Mark the attempt of a process that was killed as failed; nothing, where it had opened none."""
    for attempt in Journal(run_dir).attempts()[-1:]:
        status: Status = read_json(attempt / "status.json")
        if status["pid"] == pid and status["state"] == "running":
            write_json(attempt / "status.json", {**status, "state": "failed", "error": error})


@contextmanager
def owned(run_dir: Path) -> Iterator[None]:
    """Hold the lock of a run or an evaluation: two processes never work on the same one.

    Raises:
        Busy: another process works on it now.
    """
    with writing(run_dir):
        run_dir.mkdir(parents=True, exist_ok=True)
    lock = FileLock(run_dir / "lock")
    try:
        # Not 0: a reader of the state holds the lock for an instant.
        with writing(run_dir / "lock"):
            lock.acquire(timeout=2)
    except Timeout as error:
        raise Busy(f"another process is at work on {run_dir.name}", fix="wait for it, or stop it") from error
    try:
        yield
    finally:
        lock.release()


def is_owned(run_dir: Path) -> bool:
    """Whether a living process holds the run's lock. Changes nothing, and can be asked on a disk that is read-only."""
    try:
        with (run_dir / "lock").open("rb") as file:
            # Shared: two that ask at once must not take each other for an owner.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def state(run_dir: Path, spec: RunSpec, journal: Journal | None = None) -> State:
    """The run's state, from its lock and its records; `failed` where they are damaged, `missing` says how.

    journal: of the run, where somebody has read it already.
    """
    journal = journal or Journal(run_dir)
    attempts = journal.attempts()
    if is_owned(run_dir):
        return "running"
    if not attempts:
        return "planned"
    try:
        last: Status = read_json(attempts[-1] / "status.json")
    except RunFailed:
        return "failed"
    if last["state"] == "done":
        return "done" if not missing(run_dir, spec, journal) else "failed"
    # Still "running", yet nobody holds the lock: it was killed.
    return "interrupted" if last["state"] == "running" else last["state"]


def missing(run_dir: Path, spec: RunSpec, journal: Journal | None = None) -> list[str]:
    """What keeps the run from being done: steps, evaluations or samples that are not there, or damage to them.

    journal: see `state`.
    """
    try:
        return list(_missing(journal or Journal(run_dir), spec))
    except RunFailed as damage:
        return [damage.message]


def _missing(journal: Journal, spec: RunSpec) -> Iterator[str]:
    steps = {row["step"] for row in journal.steps()}
    if lost := set(range(1, spec.train.steps + 1)) - steps:
        yield f"{len(lost)} of {spec.train.steps} steps (first: {min(lost)})"
    expected = eval_problems(spec)
    problems: dict[int, int] = {}
    for row in journal.eval():
        drawn = row["n"] + row.get("ungraded", 0)
        problems[row["step"]] = problems.get(row["step"], 0) + (drawn == spec.eval.samples)
    for step in eval_steps(spec):
        if problems.get(step, 0) != expected:
            yield f"evaluation at step {step}: {problems.get(step, 0)} of {expected} problems"


def eval_problems(spec: RunSpec) -> int:
    """Held-out problems of one evaluation, all tiers together."""
    return sum(spec.task.tier_sizes(spec.eval.problems).values())


def eval_steps(spec: RunSpec) -> list[int]:
    """The global steps after which the policy is evaluated: the base policy, every `eval.every`, the last."""
    steps = spec.train.steps
    return sorted({0, *range(spec.eval.every, steps + 1, spec.eval.every), steps})
