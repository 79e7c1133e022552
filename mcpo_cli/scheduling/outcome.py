"""How runs ended: their state, their last metrics, and the reason of a failure."""

import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import Interrupted, RunFailed, one_line
from mcpo_cli.home import home
from mcpo_cli.records import State
from mcpo_cli.runs import attempts
from mcpo_cli.runs.journal import Journal, read_json

LITTLE_BYTES = 1 << 20
"""A disk with less free space is reported as full."""


@dataclass(frozen=True)
class RunOutcome:
    """The result of one run of a plan."""

    planned: PlannedRun
    state: State
    metrics: dict[str, float]
    """See `progress.final_metrics`; empty unless the run is done."""
    error: str | None

    def to_json(self) -> dict[str, Any]:
        """The object that `mcpo train --json` prints."""
        spec = self.planned.spec
        return {
            "run_id": spec.run_id,
            "arm": self.planned.arm,
            **spec.about,
            "state": self.state,
            "metrics": self.metrics,
            **({"error": self.error} if self.error else {}),
        }


def document(plan: Plan, outcomes: Sequence[RunOutcome]) -> dict[str, Any]:
    """The outcomes of `plan` as plain data."""
    return {"suite": plan.suite, "home": str(home()), "runs": [outcome.to_json() for outcome in outcomes]}


def raise_unfinished(plan: Plan, folder: Path, outcomes: Sequence[RunOutcome], *, stopped: bool) -> None:
    """Raise Interrupted or RunFailed if a run of `plan`, below the home `folder`, is not done."""
    unfinished = [outcome for outcome in outcomes if outcome.state != "done"]
    if not unfinished:
        return
    data = document(plan, outcomes)
    counts = f"{len(outcomes) - len(unfinished)} of {len(outcomes)} runs are done"
    if stopped:
        raise Interrupted(f"stopped: {counts}; the same command continues the others", fix=plan.command, data=data)
    errors = [(outcome.error or outcome.state).partition("; fix: ") for outcome in unfinished]
    # If all runs failed for one reason that has a fix, repeating the command alone does not help.
    shared = {fix for _, _, fix in errors}
    fix = shared.pop() if len(shared) == 1 else ""
    lines = [
        f"  {outcome.planned.spec.run_id}: {error if fix else ''.join([error, *its_fix])}\n"
        f"    log: {folder / 'runs' / outcome.planned.spec.run_id / 'worker.log'}"
        for outcome, (error, *its_fix) in zip(unfinished, errors, strict=True)
    ]
    message = "\n".join([f"{counts}; these failed:", *lines])
    raise RunFailed(message, fix=fix or f"{plan.command}  (continues them)", data=data)


def ending(folder: Path, spec: RunSpec, pid: int, code: int, state: State) -> tuple[State, str | None]:
    """State and error line of a run whose worker, process `pid`, exited with `code` and left the run in `state`."""
    if code == 0 and state == "done":
        return "done", None
    if code == 0:
        return "failed", f"the worker ended without finishing: {'; '.join(attempts.missing(folder, spec))}"
    if code == 130:
        return "interrupted", None
    if code < 0:
        return "interrupted", f"killed by {signal.Signals(-code).name}"
    return "failed", _error_line(folder, pid) or f"the worker exited with code {code}{_disk(folder)}"


def _error_line(folder: Path, pid: int) -> str | None:
    """The worker's last message: from the status of its attempt, or from its log if it opened no attempt."""
    # A worker that finds a damaged status says so in its log.
    with suppress(RunFailed):
        for attempt in Journal(folder).attempts()[-1:]:
            status = read_json(attempt / "status.json")
            if status["pid"] == pid and "error" in status:
                return one_line(str(status["error"]))
    log = folder / "worker.log"
    if not log.exists():
        return f"{folder} was removed while the run was writing to it; the same command begins it again"
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), None)


def _disk(folder: Path) -> str:
    """The reason why a worker may have left no message: a full or read-only disk."""
    free = shutil.disk_usage(folder).free
    if free < LITTLE_BYTES:
        return f"; {free // 1024} KiB are free on the disk of {folder}"
    return "" if os.access(folder, os.W_OK) else f"; {folder} cannot be written"
