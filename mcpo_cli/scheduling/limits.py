"""The limits of a run that trains on this machine: a worker that passes one is killed, by whoever started it.

From outside, as one that hangs or has no memory left cannot be relied on to end itself.
"""

import time

import psutil

from mcpo_cli.config.schema import Compute, RunSpec
from mcpo_cli.errors import ConfigError
from mcpo_cli.scheduling.progress import Progress

EVERY_SECONDS = 1.0
"""Between two looks at the memory: it reads the table of processes."""


def check(spec: RunSpec) -> None:
    """Raises ConfigError where a limit is set for a run that trains elsewhere."""
    for name in ("time_limit", "stall_limit", "memory_limit"):
        if spec.cluster.launcher == "slurm" and (limit := getattr(spec.compute, name)):
            wrong = f"compute.{name}={limit:g} is for workers on this machine; a job's limits are SLURM's"
            raise ConfigError(wrong, fix=f"compute.{name}=0, and cluster.hours=N")


class Watch:
    """Looks after the limits of `compute` for one worker, process `pid`, from now on."""

    def __init__(self, compute: Compute, pid: int) -> None:
        self._compute, self._pid = compute, pid
        self._began = self._changed = self._looked = time.monotonic()
        self._last: tuple[int, str] | None = None

    def exceeded(self, progress: Progress) -> str | None:
        """Which limit the worker has passed, and how to raise it; None while it keeps to all. progress: as of now."""
        now, compute = time.monotonic(), self._compute
        if (step_and_phase := (progress.step, progress.phase)) != self._last:
            self._last, self._changed = step_and_phase, now
        if 0 < compute.time_limit < (now - self._began) / 60:
            return _said(f"it took longer than compute.time_limit={compute.time_limit:g} minutes", "time_limit")
        if 0 < compute.stall_limit < (now - self._changed) / 60:
            return _said(
                f"nothing happened for compute.stall_limit={compute.stall_limit:g} minutes after: {progress.phase}",
                "stall_limit",
            )
        if compute.memory_limit and now - self._looked >= EVERY_SECONDS:
            self._looked = now
            if (used := memory_gib(self._pid)) > compute.memory_limit:
                what = f"it took {used:.2f} GiB of memory, more than compute.memory_limit={compute.memory_limit:g}"
                return _said(what, "memory_limit")
        return None


def memory_gib(pid: int) -> float:
    """Resident memory of a process and of all that it started; a page that they share counts for each of them."""
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
    return f"{what}, and was killed\n  fix: raise compute.{setting} (0: none); it goes on from its last checkpoint"
