"""`make bench`: measures the speed of the engine, the graders and the command line against fair opponents in one run.

Opponents take turns, medians are compared, and the raw medians are next to every ratio. Times are meaningful only
on an otherwise idle machine: the load at the start and at the end is recorded.
"""

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks import (
    engine,
    flops,
    grading,
    opponent,
    pretrained,
    reporting,
    scaling,
    startup,
    steps,
    syncing,
    warmup,
    workload,
)
from mcpo_cli.home import home
from mcpo_cli.runs.journal import write_atomic

STEPS = 5
HELPS, STARTS = 11, 3


def against_trl() -> dict[str, Any]:
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
    return {
        "ratio": trl_s / local_s,
        "flops_share": local.needed / local_s / peak,
        "trl_seconds_per_step": trl_s,
        "local_seconds_per_step": local_s,
        "local_flop_per_step": local.needed,
        "peak_flop_per_second": peak,
    }


def mcpo_overhead() -> dict[str, float]:
    """A step of MCPO over a step of DAPO with the filter off, less 1, from one base policy."""
    methods = {"mcpo": ["method=mcpo"], "dapo_filter_off": ["method=dapo", "method.dynamic_sampling=false"]}
    arms = {name: steps.real("model=toy-s", *method) for name, method in methods.items()}
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(3 * STEPS):
        for name in reversed(arms) if len(times["mcpo"]) % 2 else arms:
            times[name].append(arms[name].seconds())
    medians = {f"{name}_seconds_per_step": statistics.median(values[1:]) for name, values in times.items()}
    ratio = medians["mcpo_seconds_per_step"] / medians["dapo_filter_off_seconds_per_step"]
    return {"overhead": ratio - 1, **medians}


def help_ratio() -> dict[str, float]:
    """`mcpo --help` over the `--help` of a two-command typer app."""
    with tempfile.TemporaryDirectory() as folder:
        mcpo, plain = (statistics.median(times) for times in startup.seconds(HELPS, Path(folder)))
    return {"ratio": mcpo / plain, "mcpo_seconds": mcpo, "plain_seconds": plain}


def machine() -> dict[str, Any]:
    """The machine and the package versions of the measurement."""
    packages = {name: version(name) for name in ("mcpo-cli", "torch", "transformers", "trl", "math-verify")}
    return {"threads": workload.THREADS, "cores": os.cpu_count(), "python": platform.python_version(), **packages}


MEASURED: dict[str, Callable[[], Any]] = {
    "help": help_ratio,
    "worker_start_cpu_seconds": lambda: startup.worker_seconds(STARTS),
    "forked_worker_seconds": lambda: startup.forked_worker_seconds(STARTS),
    "local_vs_trl": against_trl,
    "local_vs_trl_at_step_15": steps.against_trl,
    "pretrained_vs_stock_and_trl": pretrained.measure,
    "steps": steps.of_runs,
    "warmup": warmup.seconds_of_ten,
    "mcpo_overhead": mcpo_overhead,
    "step_as_work_grows": scaling.measure,
    "grading": grading.against_serial,
    "report_of_long_runs": lambda: reporting.measure(reporting.SEEDS),
    "sync_of_runs": lambda: syncing.measure(syncing.SIZES),
}


def main() -> None:
    """Measure everything, write `reports/bench.json` in MCPO_HOME, print it."""
    torch.set_num_threads(workload.THREADS)
    path = home() / "reports" / "bench.json"  # before the measurements, which set other homes, also in this process
    load_before, start = os.getloadavg()[0], time.monotonic()
    report = dict[str, Any]()
    for i, (name, measure) in enumerate(MEASURED.items(), 1):
        print(f"{time.monotonic() - start:4.0f} s: {name} ({i} of {len(MEASURED)})", file=sys.stderr)
        report[name] = measure()
    report["load_average"] = {"before": load_before, "after": os.getloadavg()[0]}
    report["machine"] = machine()
    report["seconds"] = time.monotonic() - start
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(report, indent=2)
    write_atomic(path, text)
    print(f"{text}\nwritten: {path}")


if __name__ == "__main__":
    main()
