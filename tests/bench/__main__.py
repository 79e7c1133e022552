"""`make bench`: how fast the engine, the graders and the command line are, against fair opponents, in one run.

Opponents take turns, medians are compared, and the raw medians stand beside every ratio. Times mean something
on an otherwise idle machine only: the load at the start and at the end is recorded.
"""

import json
import os
import platform
import statistics
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from mcpo_cli.config.load import load
from mcpo_cli.home import home
from mcpo_cli.runs.journal import write_atomic
from tests.bench import engine, flops, grading, opponent, reporting, startup, workload

STEPS = 9
HELPS = 21


def against_trl() -> dict[str, Any]:
    """`local_vs_trl` and `flops_share`: TRL, the local engine and a matrix product take turns."""
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
    prompt_tokens = len(local.tokenizer(workload.prompts(spec, 0)[0].text)["input_ids"])
    needed = flops.global_step(spec, local.policy.model, prompt_tokens)
    return {
        "local_vs_trl": trl_s / local_s,
        "flops_share": needed / local_s / peak,
        "detail": {
            "trl_seconds_per_step": trl_s,
            "local_seconds_per_step": local_s,
            "local_flop_per_step": needed,
            "local_flop_per_second": needed / local_s,
            "peak_flop_per_second": peak,
        },
    }


def mcpo_overhead(engine_of: Callable[..., engine.Timed]) -> dict[str, float]:
    """A step of MCPO over a step of DAPO with the filter off, less 1, on the same prompts."""
    methods = {"mcpo": ["method=mcpo"], "dapo_filter_off": ["method=dapo", "method.dynamic_sampling=false"]}
    arms = {name: engine_of(*method) for name, method in methods.items()}
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(4 * STEPS):
        for name in reversed(arms) if len(times["mcpo"]) % 2 else arms:
            times[name].append(arms[name].seconds())
    medians = {f"{name}_seconds_per_step": statistics.median(values[1:]) for name, values in times.items()}
    ratio = medians["mcpo_seconds_per_step"] / medians["dapo_filter_off_seconds_per_step"]
    return {"overhead": ratio - 1, **medians}


def real(*settings: str) -> engine.Timed:
    """A run from its base policy, in the paper's shape."""
    (spec,) = load(["model=toy-s", "regime=paper-shaped", f"compute.threads={workload.THREADS}", *settings])
    return engine.RealRun(spec)


def graded(grade: engine.Grade) -> Callable[..., engine.Timed]:
    """An untrained policy whose answers are graded by `grade`."""
    return lambda *settings: engine.LocalEngine(workload.spec(*settings), grade)


def help_ratio() -> dict[str, float]:
    """`mcpo --help` over the `--help` of a two-command typer app."""
    with tempfile.TemporaryDirectory() as folder:
        mcpo, plain = (statistics.median(times) for times in startup.seconds(HELPS, Path(folder)))
    return {"ratio": mcpo / plain, "mcpo_seconds": mcpo, "plain_seconds": plain}


def machine() -> dict[str, Any]:
    """Where it was measured."""
    packages = {name: version(name) for name in ("mcpo-cli", "torch", "transformers", "trl", "math-verify")}
    return {"threads": workload.THREADS, "cores": os.cpu_count(), "python": platform.python_version(), **packages}


def main() -> None:
    """Measure everything, write `reports/bench.json`, print it."""
    torch.set_num_threads(workload.THREADS)
    load_before = os.getloadavg()[0]
    helps = help_ratio()
    speed = against_trl()
    overhead = {
        "real_run_from_its_base_policy": mcpo_overhead(real),
        "every_mastered_group_feels_the_hinge": mcpo_overhead(graded(engine.quarters)),
        "no_mastered_group": mcpo_overhead(graded(engine.coin_flips)),
    }
    graded_answers = grading.against_serial()
    long_runs = reporting.measure()
    report = {
        "local_vs_trl": speed["local_vs_trl"],
        "flops_share": speed["flops_share"],
        "help_ratio": helps["ratio"],
        "mcpo_overhead": overhead["real_run_from_its_base_policy"]["overhead"],
        "grading": {kind: measured["ratio"] for kind, measured in graded_answers.items()},
        "report_of_long_runs": long_runs,
        "detail": {
            **speed["detail"],
            "help": helps,
            "overhead": overhead,
            "grading": graded_answers,
            "load_average": {"before": load_before, "after": os.getloadavg()[0]},
            "machine": machine(),
        },
    }
    path = home() / "reports" / "bench.json"
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(report, indent=2)
    write_atomic(path, text)
    print(f"{text}\nwritten: {path}")


if __name__ == "__main__":
    main()
