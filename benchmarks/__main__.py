"""`make bench`: records rows of the speed of the engine, the graders and the command line, beside fair opponents.

Opponents take turns, medians are compared, and the raw medians are next to every ratio. Times are meaningful only
on an otherwise idle machine: every row has the load. `python -m benchmarks NAME ...` measures only these parts.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import torch

from benchmarks import (
    engine,
    flops,
    grading,
    many_runs,
    opponent,
    pretrained,
    reporting,
    rows,
    scaling,
    startup,
    steps,
    warmup,
    workload,
)

STEPS = 5
HELPS, STARTS = 11, 3


def against_trl() -> Iterator[rows.Measurement]:
    """TRL, the local engine and a matrix product take turns, on rollouts that share nothing but their prompts."""
    spec = workload.spec("method=mcpo")
    local = engine.LocalEngine(spec, engine.coin_flips)
    local.seconds()  # warms up
    local_times: list[float] = []
    peaks: list[float] = []

    def between() -> None:
        peaks.append(flops.peak())
        local_times.append(local.seconds())

    trl_s = statistics.median(opponent.seconds(STEPS, between))
    local_s, peak = statistics.median(local_times), statistics.median(peaks)
    numbers = {
        "trl_ratio": trl_s / local_s,
        "flops_share": local.needed / local_s / peak,
        "trl_seconds": trl_s,
        "local_seconds": local_s,
        "peak_gflops": peak / 1e9,
    }
    yield "step against TRL", {"model": "toy-s", "trl": version("trl")}, numbers


def mcpo_overhead() -> Iterator[rows.Measurement]:
    """A step of MCPO over a step of DAPO with the filter off, less 1, from one base policy."""
    methods = {"mcpo": ["method=mcpo"], "dapo_filter_off": ["method=dapo", "method.dynamic_sampling=false"]}
    arms = {name: steps.real("model=toy-s", *method) for name, method in methods.items()}
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(3 * STEPS):
        for name in reversed(arms) if len(times["mcpo"]) % 2 else arms:
            times[name].append(arms[name].seconds())
    medians = {f"{name}_seconds": statistics.median(values[1:]) for name, values in times.items()}
    overhead = medians["mcpo_seconds"] / medians["dapo_filter_off_seconds"] - 1
    yield "step of MCPO over DAPO", {"model": "toy-s"}, {"overhead": overhead, **medians}


def starts() -> Iterator[rows.Measurement]:
    """`mcpo --help` over the `--help` of a two-command typer app; what a worker takes before it trains."""
    with tempfile.TemporaryDirectory() as folder:
        mcpo, plain = (statistics.median(times) for times in startup.seconds(HELPS, Path(folder)))
    yield "mcpo --help", {}, {"ratio": mcpo / plain, "mcpo_seconds": mcpo, "plain_seconds": plain}
    yield "start of a worker", {"by": "imports"}, {"cpu_seconds": startup.worker_seconds(STARTS)}
    yield "start of a worker", {"by": "fork server"}, {"seconds": startup.forked_worker_seconds(STARTS)}


MEASURED: dict[str, Callable[[], Iterator[rows.Measurement]]] = {
    "starts": starts,
    "trl": against_trl,
    "trl-later": steps.against_trl,
    "pretrained": pretrained.measure,
    "steps": steps.of_runs,
    "warmup": warmup.seconds_of_ten,
    "overhead": mcpo_overhead,
    "growth": scaling.measure,
    "grading": grading.against_serial,
    "report": lambda: reporting.measure(reporting.SEEDS),
    "many-runs": lambda: many_runs.measure(many_runs.SIZES),
}


def main() -> None:
    """Measure everything, or the parts that are named, and record the rows."""
    torch.set_num_threads(workload.THREADS)
    home = os.environ.get("MCPO_HOME")
    begun, parts = time.monotonic(), sys.argv[1:] or [*MEASURED]
    for i, name in enumerate(parts, 1):
        sys.stderr.write(f"{time.monotonic() - begun:4.0f} s: {name} ({i} of {len(parts)})\n")
        for measurement in MEASURED[name]():
            print(rows.record(*measurement), flush=True)
        if home:  # some parts set another one
            os.environ["MCPO_HOME"] = home


if __name__ == "__main__":
    main()
