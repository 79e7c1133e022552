"""What happens to the worker of a run in its life, and what is left of it."""

import os
import signal
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.attempts import is_owned
from mcpo_cli.runs.journal import Journal, read_json
from tests.engine import work


def released(folder: Path) -> bool:
    """Whether nobody owns the run. A child of the worker that is not its own program yet has the lock a moment more."""
    latest = time.monotonic() + 2
    while is_owned(folder) and time.monotonic() < latest:
        time.sleep(0.01)
    return not is_owned(folder)


def send(process: ForkServerProcess, number: signal.Signals, delay: float) -> bool:
    """Signal the worker after `delay` seconds; whether it was still alive."""
    process.join(delay)
    if process.exitcode is not None:
        return False
    assert process.pid is not None
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def last_step(home: Path, spec: RunSpec) -> int:
    """The last global step that any attempt recorded, 0 for none."""
    return max((row["step"] for row in Journal(home / "runs" / spec.run_id).steps()), default=0)


def phase(home: Path, spec: RunSpec) -> str:
    """What the newest attempt said last that it does, without numbers; empty where there is none."""
    attempts = Journal(home / "runs" / spec.run_id).attempts()
    return str(read_json(attempts[-1] / "status.json").get("phase", "starting")).split(" ")[0] if attempts else ""


def recover(home: Path, spec: RunSpec) -> float:
    """Start the run again and see it done; seconds until it was where it had been.

    That is where its records reach as far as those that were there before, by its own clock.
    """
    lost = last_step(home, spec)
    began = time.time()
    assert work(home, spec) == 0
    newest = Journal(home / "runs" / spec.run_id).attempts()[-1]
    times = [row["time"] for row in Journal(home / "runs" / spec.run_id).steps() if row["step"] >= max(lost, 1)]
    back = [moment for moment in times if moment > began]
    return min(back, default=read_json(newest / "status.json")["updated"]) - began
