"""The limits of `compute` that end a worker: time, standstill and memory."""

import time
from contextlib import suppress

import psutil

from mcpo_cli.config.schema import Compute, RunSpec
from mcpo_cli.errors import ConfigError
from mcpo_cli.scheduling.process import Worker
from mcpo_cli.scheduling.progress import Progress

MEMORY_SECONDS = 1.0
"""Least time between two memory checks, which read the process table."""


def check_limits(spec: RunSpec) -> None:
    """Raises ConfigError if a limit is set for a run that trains in a SLURM job."""
    for name in ("time_limit", "stall_limit", "memory_limit"):
        if spec.cluster.launcher == "slurm" and (limit := getattr(spec.compute, name)):
            wrong = f"compute.{name}={limit:g} applies to workers on this machine only; SLURM limits its own jobs"
            raise ConfigError(wrong, fix=f"compute.{name}=0, and cluster.hours=N")


class Watch:
    """Checks the limits of `compute` for one worker from now on: it cannot do so itself if it hangs."""

    def __init__(self, compute: Compute, worker: Worker) -> None:
        self._compute, self._worker = compute, worker
        self._began = self._changed = self._looked = time.monotonic()
        self._last: tuple[int, str] | None = None

    def exceeded(self, progress: Progress) -> str | None:
        """The limit that the worker exceeds, and how to raise it; None if it exceeds none. progress: current."""
        now, compute = time.monotonic(), self._compute
        if (step_and_phase := (progress.step, progress.phase)) != self._last:
            self._last, self._changed = step_and_phase, now
        if 0 < compute.time_limit < (now - self._began) / 60:
            return _exceeds("time_limit", f"it took longer than compute.time_limit={compute.time_limit:g} minutes")
        if 0 < compute.stall_limit < (now - self._changed) / 60:
            limit = f"compute.stall_limit={compute.stall_limit:g} minutes"
            return _exceeds("stall_limit", f"no progress for {limit} in phase: {progress.phase}")
        if compute.memory_limit and self._worker.pid and now - self._looked >= MEMORY_SECONDS:
            self._looked = now
            if (memory := memory_gib(self._worker.pid)) > compute.memory_limit:
                limit = f"compute.memory_limit={compute.memory_limit:g}"
                return _exceeds("memory_limit", f"it used {memory:.2f} GiB of memory, more than {limit}")
        return None


def _exceeds(setting: str, problem: str) -> str:
    return f"{problem}, and was killed\n  fix: raise compute.{setting} (0: none); it continues from its last checkpoint"


def memory_gib(pid: int) -> float:
    """Resident memory of a process and its descendants in GiB; shared pages count for each process."""
    total = 0
    with suppress(psutil.NoSuchProcess):
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
    return total / 2**30
