"""Workers that come to life without loading their libraries again: 60 of them are to be killed in a minute or two.

A server process loads the engine once and forks a real worker for each life: the process, its files and what happens
to it are those of `python -m mcpo_cli.scheduling.worker`, only the first seconds of imports are not there.
"""

import multiprocessing
import os
import resource
import signal
import sys
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from mcpo_cli.backends.local import train
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.attempts import is_owned
from mcpo_cli.runs.journal import Journal, read_json, write_json
from mcpo_cli.scheduling import worker

LOADED = (train, worker)
"""What the server has loaded when it forks."""
PATIENCE = 300.0


def begin(home: Path, spec: RunSpec, largest: int = resource.RLIM_INFINITY) -> ForkServerProcess:
    """A worker of `spec` below `home` that can write files of `largest` bytes at most."""
    folder = home / "runs" / spec.run_id
    if not (folder / "spec.json").exists():
        write_json(folder / "spec.json", spec.to_dict())
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_live, args=(str(home), spec.run_id, largest))
    process.start()
    return process


def _live(home: str, run_id: str, largest: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
    # Until the worker asks for it, it ends as a process that does not.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ |= {"MCPO_HOME": home, "OMP_NUM_THREADS": "1"}
    log = os.open(f"{home}/runs/{run_id}/worker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.exit(worker.work(run_id))


def end(process: ForkServerProcess) -> int:
    """Wait for the worker; its exit code, negative for a signal."""
    process.join(PATIENCE)
    assert process.exitcode is not None, "it did not end"
    return process.exitcode


def complete(home: Path, spec: RunSpec, largest: int = resource.RLIM_INFINITY) -> int:
    """Live to the end; the exit code. See `begin`."""
    return end(begin(home, spec, largest))


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
    assert complete(home, spec) == 0
    newest = Journal(home / "runs" / spec.run_id).attempts()[-1]
    times = [row["time"] for row in Journal(home / "runs" / spec.run_id).steps() if row["step"] >= max(lost, 1)]
    back = [moment for moment in times if moment > began]
    return min(back, default=read_json(newest / "status.json")["updated"]) - began
