"""What commands cost, and how that grows with the number of runs."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Cost:
    """What a command took. Only CPU seconds are comparable on a busy machine."""

    seconds: float
    cpu_seconds: float
    peak_mb: float
    """The largest memory of the process itself, or of the largest of those it waited for."""

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers of a row (`rows.record`)."""
        return asdict(self)


def timed(environment: Mapping[str, str], *words: str) -> Cost:
    """The cost of Python with the arguments `words`.

    Raises:
        RuntimeError: the command failed; with the end of what it said.
    """
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)}: exit {process.returncode}: {said[-2000:]}")
    return Cost(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1000)


def mcpo(environment: Mapping[str, str], *words: str) -> Cost:
    """The cost of an `mcpo` command."""
    return timed(environment, "-m", "mcpo_cli.main", *words)
