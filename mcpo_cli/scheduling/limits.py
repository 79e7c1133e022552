"""Limits of a run on this machine: the process that started a worker kills it if it exceeds one.

A worker cannot enforce them itself: it may hang or be out of memory.
"""

import time

import psutil

from mcpo_cli.config.schema import Compute, RunSpec
from mcpo_cli.errors import ConfigError
from mcpo_cli.scheduling.handles import Worker
from mcpo_cli.scheduling.progress import Progress

EVERY_SECONDS = 1.0
"""Least time between two memory checks, which read the process table."""


def check(spec: RunSpec) -> None:
    """Raises ConfigError if a limit is set for a run that trains in a SLURM job."""
    for name in ("time_limit", "stall_limit", "memory_limit"):
        if spec.cluster.launcher == "slurm" and (limit := getattr(spec.compute, name)):
            wrong = f"compute.{name}={limit:g} applies to workers on this machine only; SLURM limits its own jobs"
            raise ConfigError(wrong, fix=f"compute.{name}=0, and cluster.hours=N")


class Watch:
    """Checks the limits of `compute` for one worker from now on."""

    def __init__(self, compute: Compute, worker: Worker) -> None:
        self._compute, self._worker = compute, worker
        self._began = self._changed = self._looked = time.monotonic()
        self._last: tuple[int, str] | None = None

    def exceeded(self, progress: Progress) -> str | None:
        """Which limit the worker exceeds, and how to raise it; None if it exceeds none. progress: current."""
        now, compute = time.monotonic(), self._compute
        if (step_and_phase := (progress.step, progress.phase)) != self._last:
            self._last, self._changed = step_and_phase, now
        if 0 < compute.time_limit < (now - self._began) / 60:
            return _said(f"it took longer than compute.time_limit={compute.time_limit:g} minutes", "time_limit")
        if 0 < compute.stall_limit < (now - self._changed) / 60:
            return _said(
                f"no progress for compute.stall_limit={compute.stall_limit:g} minutes in phase: {progress.phase}",
                "stall_limit",
            )
        if compute.memory_limit and self._worker.pid and now - self._looked >= EVERY_SECONDS:
            self._looked = now
            if (used := memory_gib(self._worker.pid)) > compute.memory_limit:
                what = f"it used {used:.2f} GiB of memory, more than compute.memory_limit={compute.memory_limit:g}"
                return _said(what, "memory_limit")
        return None


def memory_gib(pid: int) -> float:
    """Resident memory of a process and its descendants in GiB; shared pages count for each process."""
    total = 0
    try:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    for process in family:
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 2**30


def _said(what: str, setting: str) -> str:
    return f"{what}, and was killed\n  fix: raise compute.{setting} (0: none); it continues from its last checkpoint"
