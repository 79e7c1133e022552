"""Growth of cost with the amount of work: commands timed at several sizes, and the line through their times."""

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping


def timed(environment: Mapping[str, str], *words: str) -> tuple[float, float]:
    """Wall and CPU seconds of Python with the arguments `words`; only CPU seconds are comparable on a busy machine."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def mcpo(environment: Mapping[str, str], *words: str) -> tuple[float, float]:
    """Wall and CPU seconds of an `mcpo` command."""
    return timed(environment, "-m", "mcpo_cli.main", *words)


def fitted(seconds: Mapping[int, float]) -> dict[str, float]:
    """The least-squares line through `seconds`, number of runs -> seconds, at two sizes or more.

    `curvature`: seconds per run between the two largest sizes over those between the two smallest; 1 for a line.
    """
    (a, b), (y, z) = sorted(seconds)[:2], sorted(seconds)[-2:]
    slope, intercept = statistics.linear_regression(list(seconds), list(seconds.values()))
    steeper = ((seconds[z] - seconds[y]) / (z - y)) / ((seconds[b] - seconds[a]) / (b - a))
    return {"seconds_per_run": slope, "seconds_without_runs": intercept, "curvature": steeper}
