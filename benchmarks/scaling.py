"""Cost as work grows: seconds of a global step against rollouts, tokens of a response and parameters of the model.

Rollouts of the untrained policy share nothing but their prompts, so that the work grows with each of them. It measures
CPU seconds of one thread. `python -m benchmarks.scaling` measures only this.
"""

import math
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from benchmarks import engine, rows, workload
from mcpo_cli.config.schema import RunSpec

PROMPTS = 32
STEPS = 3
ROLLOUTS = (4, 8, 16, 32)
LENGTHS = (16, 32, 64)
HIDDEN = (64, 128, 256)
"""Widths of the model; numbers of heads and widths of feed-forward blocks are proportional to them."""


def measure() -> Iterator[rows.Measurement]:
    """CPU seconds of a step by size, and the power of the size that they grow with (1: in proportion)."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from _grown("rollouts", {rollouts: _spec(rollouts=rollouts) for rollouts in ROLLOUTS})
        yield from _grown("response tokens", {length: _spec(max_response=length) for length in LENGTHS})
        yield from _grown("parameters", {_parameters(spec): spec for spec in map(_of_hidden, HIDDEN)})
    finally:
        torch.set_num_threads(threads)


def power(seconds: Mapping[int, float]) -> float:
    """The slope of log seconds over log size, by least squares."""
    sizes, times = ([math.log(value) for value in values] for values in (seconds, seconds.values()))
    return statistics.linear_regression(sizes, times).slope


def _grown(of: str, specs: Mapping[int, RunSpec]) -> Iterator[rows.Measurement]:
    engines = {size: engine.LocalEngine(spec, engine.coin_flips) for size, spec in specs.items()}
    # The first step warms up; sizes take turns, so that all see the same machine.
    turns = [{size: _seconds(one) for size, one in engines.items()} for _ in range(STEPS + 1)]
    medians = {size: statistics.median(times[size] for times in turns[1:]) for size in engines}
    for size, seconds in medians.items():
        yield "step as work grows", {"of": of, "size": size}, {"cpu_seconds": seconds}
    yield "growth of a step", {"of": of}, {"power": power(medians)}


def _seconds(one: engine.LocalEngine) -> float:
    before = time.process_time()
    one.seconds()
    return time.process_time() - before


def _spec(**train: int) -> RunSpec:
    spec = workload.spec("method=dapo", "method.dynamic_sampling=false")
    work: dict[str, Any] = {"prompts": PROMPTS, "mini_batch": PROMPTS // 2, **train}
    return replace(spec, train=replace(spec.train, **work), compute=replace(spec.compute, threads=1))


def _of_hidden(hidden: int) -> RunSpec:
    spec = _spec()
    share = hidden // spec.model.hidden
    wider = {"hidden": hidden, "heads": spec.model.heads * share, "mlp": spec.model.mlp * share}
    return replace(spec, model=replace(spec.model, **wider))


def _parameters(spec: RunSpec) -> int:
    return sum(weight.numel() for weight in workload.fresh_model(spec)[0].parameters())


if __name__ == "__main__":
    for measurement in measure():
        print(rows.record(*measurement))
