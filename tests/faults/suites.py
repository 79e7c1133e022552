"""Small real runs that the fault tests disturb: single workers, and `mcpo train` of two runs in a separate home."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil

from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.attempts import is_owned, state
from mcpo_cli.runs.journal import Journal, read_json

SETTINGS = (
    "scale=smoke compute.checkpoint_every=1 compute.tracking_uri=offline method=mcpo method.anchor=previous_step "
    "method.delta=0 task.max_ops=2 warmup.probe_prompts=64 warmup.batch=32 warmup.target_accuracy=0.03 train.steps=4 "
    "train.prompts=16 train.mini_batch=8 train.rollouts=2 train.temperature=0.3 train.lr=1e-3 probe.gradients_every=2 "
    "probe.gradient_prompts=2 probe.panel=4 probe.panel_every=2"
)


def spec_of(*more: str) -> RunSpec:
    (spec,) = load([*SETTINGS.split(), *more])
    return spec


def released(folder: Path) -> bool:
    """True if nobody owns the run. A child that the worker has just forked may hold the lock for a moment longer."""
    latest = time.monotonic() + 2
    while is_owned(folder) and time.monotonic() < latest:
        time.sleep(0.01)
    return not is_owned(folder)


def send(process: ForkServerProcess, number: signal.Signals, delay: float) -> bool:
    """Signal the worker after `delay` seconds; returns True if it was still alive."""
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
    """The last phase that the newest attempt recorded, without numbers; empty without an attempt."""
    attempts = Journal(home / "runs" / spec.run_id).attempts()
    return str(read_json(attempts[-1] / "status.json").get("phase", "starting")).split(" ")[0] if attempts else ""


class Suite:
    """`mcpo train` with two runs in a separate home."""

    def __init__(self, home: Path, *more: str) -> None:
        self.home = home
        self.specs = load([*SETTINGS.split(), "seed=0,1", *more])
        self.command = [sys.executable, "-m", "mcpo_cli.main", "train", *SETTINGS.split(), "seed=0,1", *more, "--json"]
        self.env = {**os.environ, "MCPO_HOME": str(home), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}

    def begin(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self.command,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def folder(self, spec: RunSpec) -> Path:
        return self.home / "runs" / spec.run_id

    def attempts(self) -> int:
        return sum(len(Journal(self.folder(spec)).attempts()) for spec in self.specs)

    def processes(self) -> list[psutil.Process]:
        """All processes with this home in their environment."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("MCPO_HOME") == str(self.home):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def nobody_is_left(self) -> bool:
        """True if all of them end; a worker notices at a global step that its scheduler is gone."""
        _, alive = psutil.wait_procs(self.processes(), timeout=600)
        return not alive

    def wait_for_step(self, step: int) -> None:
        """Wait until a run has recorded the step; 0 for the start of an attempt."""
        while not self.attempts() or last_step(self.home, self.specs[0]) < step:
            time.sleep(0.02)

    def states(self) -> list[str]:
        return [state(self.folder(spec), spec) for spec in self.specs]
