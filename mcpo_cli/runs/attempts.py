"""Attempts and states of a run. A run is `done` only if its records are complete; its status file does not decide."""

import fcntl
import json
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mcpo_cli.config.eval_schedule import eval_problems, eval_steps
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import RunFailed
from mcpo_cli.home import writing
from mcpo_cli.records import State, Status
from mcpo_cli.redaction import redact
from mcpo_cli.runs.journal import (
    STEPS,
    SUMS,
    Journal,
    JournalWriter,
    drop_torn,
    last_row,
    numbered,
    read_json,
    seal,
    sync,
    write_json,
)
from mcpo_cli.settings import flat

RESERVE = ".reserve"
RESERVE_BYTES = 1 << 16
"""Bytes set aside so that a full disk can still take the end of an attempt: its open row, checksums and error."""


class Busy(RunFailed):
    """Another process is working on this run or evaluation."""


class Attempt:
    """One attempt at a run, starting after `start_step`: its folder, journal and status.

    Raises:
        RunFailed: the disk cannot be written. Every method that writes raises it.
    """

    def __init__(self, run_dir: Path, spec: RunSpec, start_step: int) -> None:
        number = 1 + max((int(path.name.removeprefix("attempt_")) for path in numbered(run_dir)), default=0)
        self.folder = run_dir / f"attempt_{number}"
        with writing(self.folder):
            self.folder.mkdir(parents=True)
            sync(run_dir)
            sync(run_dir.parent)
            # Random bytes: a compressing file system cannot shrink them.
            (self.folder / RESERVE).write_bytes(os.urandom(RESERVE_BYTES))
        write_json(self.folder / "spec.json", spec.to_dict())
        now = time.time()
        self.status = Status(
            state="running", start_step=start_step, durable_step=start_step, pid=os.getpid(), started=now, updated=now
        )
        self._lock = threading.RLock()
        self._write_status()
        self.journal = JournalWriter(self.folder)

    def durable(self, step: int) -> None:
        """Record that a checkpoint covers everything up to global step `step`."""
        with self._lock:
            self.status["durable_step"] = step
            self._write_status()

    def phase(self, text: str) -> None:
        """Record what the run is doing, for display."""
        with self._lock:
            self.status["phase"] = text
            self._write_status()

    def note(self, text: str) -> None:
        """Record something unusual about this attempt, for display; any thread may."""
        with self._lock:
            self.status["notes"] = [*self.status.get("notes", []), text]
            self._write_status()

    def end(self, state: State, error: str | None = None) -> None:
        """Close the attempt. error: the reason, on one line."""
        (self.folder / RESERVE).unlink(missing_ok=True)
        try:
            self.journal.close()
            seal(self.folder)
        except RunFailed:
            # A completed run must be fully written; an unfinished one recomputes lost rows.
            if state == "done":
                raise
        with self._lock:
            self.status["state"] = state
            if error is not None:
                self.status["error"] = redact(error)
            self._write_status()

    def _write_status(self) -> None:
        self.status["updated"] = time.time()
        write_json(self.folder / "status.json", self.status)


def resume_step(run_dir: Path, spec: RunSpec, checkpoints: Sequence[int]) -> int:
    """The global step that the next attempt continues from: the newest step with a checkpoint and all rows, or else 0.

    Attempts that were killed are sealed first, without rows torn by a power cut.

    Args:
        checkpoints: the steps of the complete checkpoints.

    Raises:
        RunFailed: rows of an ended attempt are damaged, or an attempt belongs to another run.
    """
    check_own(run_dir, spec)
    for attempt in Journal(run_dir).attempts():
        if not (attempt / SUMS).exists():
            (attempt / RESERVE).unlink(missing_ok=True)
            drop_torn(attempt / STEPS)
            seal(attempt)
    journal = Journal(run_dir)
    # Damage is better found now than after hours of training.
    journal.check_all()
    gap = _first_gap(journal, spec)
    return max((step for step in checkpoints if step < gap), default=0)


def durable_step(run_dir: Path) -> int:
    """The last global step that a checkpoint of any attempt covered, whether the checkpoint still exists or not."""
    return max((read_json(path / "status.json")["durable_step"] for path in Journal(run_dir).attempts()), default=0)


def _first_gap(journal: Journal, spec: RunSpec) -> float:
    """The first global step without all of its rows: metrics, prompt groups, and the evaluation if one is due."""
    rollouts, groups, evaluated = _rollouts(journal), set(journal.files("groups")), _evaluated(journal, spec)
    total = eval_problems(spec)
    gaps = [step for step in range(1, spec.train.steps + 1) if step not in rollouts.keys() & groups]
    gaps += [step for step in eval_steps(spec, rollouts) if evaluated.get(step, 0) != total]
    return min(gaps, default=math.inf)


def check_own(run_dir: Path, spec: RunSpec) -> None:
    """Compare the settings of each attempt with the settings of the run.

    Raises:
        RunFailed: an attempt belongs to another run, as in a copied or linked folder, or its settings are damaged.
    """
    required, settings = (json.loads(json.dumps(spec.flat_identity(later_too=too))) for too in (False, True))
    # An attempt that is older than a setting lacks it; attempts that have the setting must agree.
    for attempt in Journal(run_dir).attempts():
        stored = read_json(attempt / "spec.json")
        if stored.get("base_seed") is None:  # then the identity has the run's seed
            stored["base_seed"] = stored.get("seed")
        facts = flat(stored)
        expected = {key: value for key, value in settings.items() if key in required or key in facts}
        if (key := next((key for key, value in expected.items() if facts.get(key) != value), None)) is not None:
            raise RunFailed(
                f"{attempt} belongs to another run ({key}={facts.get(key)}, and this run has "
                f"{key}={expected[key]}): {run_dir} is a copy of that run's folder or a link to it",
                fix=f"{'rm' if run_dir.is_symlink() else 'rm -r'} {run_dir}, then repeat the command that starts "
                "this run",
            )


def mark_failed(run_dir: Path, pid: int, error: str) -> None:
    """Mark the last attempt as failed if the killed process `pid` had opened it."""
    for attempt in Journal(run_dir).attempts()[-1:]:
        status: Status = read_json(attempt / "status.json")
        if status["pid"] == pid and status["state"] == "running":
            write_json(attempt / "status.json", {**status, "state": "failed", "error": error})


@contextmanager
def owned(run_dir: Path) -> Iterator[None]:
    """Hold the lock of a run or an evaluation, so that no two processes work on the same one.

    Raises:
        Busy: another process holds the lock.
    """
    with writing(run_dir):
        run_dir.mkdir(parents=True, exist_ok=True)
    lock = FileLock(run_dir / "lock")
    try:
        # Not 0: `is_owned` in another process holds the lock for an instant.
        with writing(run_dir / "lock"):
            lock.acquire(timeout=2)
    except Timeout as error:
        raise Busy(f"another process is at work on {run_dir.name}", fix="wait for it, or stop it") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def scratch(home: Path, prefix: str) -> Iterator[Path]:
    """A temporary folder of `home`; those of this prefix that killed processes have left are removed."""
    for left in home.glob(f"{prefix}*"):
        if not is_owned(left):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=home, prefix=prefix) as temporary, owned(Path(temporary)):
        yield Path(temporary)


def is_owned(run_dir: Path) -> bool:
    """True if a living process holds the run's lock. Works on a read-only disk."""
    try:
        with (run_dir / "lock").open("rb") as file:
            # A shared lock: two simultaneous readers must not mistake each other for an owner.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (FileNotFoundError, IsADirectoryError):
        return False
    except BlockingIOError:
        return True
    return False


def state(run_dir: Path, spec: RunSpec, journal: Journal | None = None) -> State:
    """The run's state, from its lock and records. Damaged records mean `failed`; `missing` describes the damage.

    journal: the run's journal, if the caller has it.
    """
    return "running" if is_owned(run_dir) else recorded_state(run_dir, spec, journal)


def newest_step(attempt: Path) -> tuple[dict[str, Any] | None, int]:
    """The row of an attempt's last global step, and its number; without a row, the step that the attempt began at.

    Raises:
        RunFailed: the records are damaged.
    """
    row = last_row(attempt / STEPS)
    return row, int(row["step"] if row else read_json(attempt / "status.json")["start_step"])


def state_of(run_dir: Path, recorded: State) -> State:
    """The state of a run whose records are known to say `recorded`; see `state`."""
    return "running" if is_owned(run_dir) else recorded


def recorded_state(run_dir: Path, spec: RunSpec, journal: Journal | None = None) -> State:
    """The run's state from its records alone, for the holder of its lock. See `state`."""
    journal = journal or Journal(run_dir)
    attempts = journal.attempts()
    if not attempts:
        return "planned"
    try:
        check_own(run_dir, spec)
        last: Status = read_json(attempts[-1] / "status.json")
        if last["state"] == "done":
            return "failed" if any(_missing(journal, spec)) else "done"
    except RunFailed:
        return "failed"
    # The status is "running" but no process holds the lock: the run was killed.
    return "interrupted" if last["state"] == "running" else last["state"]


def statuses(run_dir: Path) -> dict[str, Status]:
    """The status of each attempt by its name; an attempt that was killed while it ran is `interrupted`."""
    attempts = Journal(run_dir).attempts()
    by_name: dict[str, Status] = {attempt.name: read_json(attempt / "status.json") for attempt in attempts}
    for name, status in by_name.items():
        if status["state"] == "running" and not (name == attempts[-1].name and is_owned(run_dir)):
            status |= {"state": "interrupted", "error": "killed"}
    return by_name


def failure(run_dir: Path, spec: RunSpec) -> str | None:
    """The error of the run's last attempt; None if it ended without one, or its records are damaged."""
    attempts = [] if is_owned(run_dir) else Journal(run_dir).attempts()
    try:
        check_own(run_dir, spec)
        last: Status | None = read_json(attempts[-1] / "status.json") if attempts else None
    except RunFailed:
        return None
    return last.get("error", "no error was recorded") if last and last["state"] == "failed" else None


def missing(run_dir: Path, spec: RunSpec, journal: Journal | None = None) -> list[str]:
    """Reasons why the run is not done: missing or damaged steps, evaluations or samples. journal: see `state`."""
    try:
        check_own(run_dir, spec)
        return list(_missing(journal or Journal(run_dir), spec))
    except RunFailed as damage:
        return [damage.message]


def _missing(journal: Journal, spec: RunSpec) -> Iterator[str]:
    rollouts = _rollouts(journal)
    if gaps := set(range(1, spec.train.steps + 1)) - rollouts.keys():
        yield f"{len(gaps)} of {spec.train.steps} steps are missing, from step {min(gaps)} on"
    problems = _evaluated(journal, spec)
    total = eval_problems(spec)
    for step in eval_steps(spec, rollouts):
        if problems.get(step, 0) != total:
            yield f"the evaluation at step {step} has {problems.get(step, 0)} of {total} problems"


def _rollouts(journal: Journal) -> dict[int, float]:
    """Global step -> rollouts sampled up to it."""
    return {row["step"]: row["metrics"].get("cost/rollouts", 0.0) for row in journal.steps()}


def _evaluated(journal: Journal, spec: RunSpec) -> dict[int, int]:
    """Global step -> number of held-out problems with all of their samples."""
    problems: dict[int, int] = {}
    for row in journal.eval():
        count = row["n"] + row.get("ungraded", 0)
        problems[row["step"]] = problems.get(row["step"], 0) + (count == spec.eval.samples)
    return problems
