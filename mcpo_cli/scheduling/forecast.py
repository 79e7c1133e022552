"""The forecast of a plan, made once: what is done, and what the rest will take. Dry run and scheduler read it."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from mcpo_cli import machine
from mcpo_cli.config import cost
from mcpo_cli.config.cost import LOADING_SECONDS, START_SECONDS, Estimate, GpuCost
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.schema import RunSpec, Train
from mcpo_cli.home import location
from mcpo_cli.records import State
from mcpo_cli.runs import attempts
from mcpo_cli.runs.bases import makes_base
from mcpo_cli.scheduling.progress import Tracker
from mcpo_cli.scheduling.speeds import Speeds

WILD = 0.05
"""The least learning rate that gets a warning."""


@dataclass(frozen=True)
class Expected:
    """One run of a plan as it was found, and its cost."""

    planned: PlannedRun
    folder: Path
    state: State
    step: int
    """The global steps that are done."""
    estimate: Estimate
    """Its cost by the cost model alone."""
    gpus: GpuCost | None
    """The cost of a run on GPUs, measured if steps were measured; None for other runs."""
    seconds_left: float
    """Seconds until the run ends; the next two fields are parts of this time."""
    start_seconds: float
    """Seconds until the first of its global steps begins: start-up, warm-up, evaluation of a base policy."""
    end_seconds: float
    """Seconds of the evaluation after the last global step."""

    @property
    def spec(self) -> RunSpec:
        """The settings of the run."""
        return self.planned.spec

    @property
    def step_seconds(self) -> float:
        """Seconds of one global step, with its share of the evaluations between the first and the last."""
        steps = self.seconds_left - self.start_seconds - self.end_seconds
        return max(0.0, steps) / max(1, self.spec.train.steps - self.step)

    def to_json(self) -> dict[str, Any]:
        """The object that `--dry-run --json` prints for the run."""
        document: dict[str, Any] = {"run_id": self.spec.run_id, "arm": self.planned.arm, **self.spec.about}
        document |= {"state": self.state, "seconds_left": round(self.seconds_left, 1)}
        if self.estimate.existing:
            document |= {"memory_bytes": round(self.estimate.memory), "disk_bytes": round(self.estimate.disk)}
        document["spec"] = self.spec.to_dict()
        if self.gpus:
            document["cost"] = self.gpus.to_json()
        return document


@dataclass(frozen=True)
class Forecast:
    """The runs of a plan with their remaining time and cost."""

    plan: Plan
    home: Path
    runs: dict[str, Expected]
    """By run id, in the order in which the scheduler starts them, which decides how long the last worker is alone."""
    in_table: list[Expected]
    """The same runs in the order of the plan's table."""
    unfinished: list[Estimate]
    """The runs of the table that are not done.

    Only these are checked, so that tables of a cluster's runs can be built on any machine.
    """
    speeds: Speeds

    @cached_property
    def parallel(self) -> int:
        """Number of runs at a time: `compute.parallel`, or as many as fill the available cores.

        By default a verl run has the machine to itself, and all SLURM jobs are submitted at once.
        """
        spec = self.plan.runs[0].spec
        if spec.compute.parallel:
            return spec.compute.parallel
        if spec.cluster.launcher == "slurm":
            return len(self.plan.runs)
        return 1 if spec.backend == "verl" else max(1, machine.cores() // spec.compute.threads)

    @property
    def cautions(self) -> Iterator[str]:
        """Warnings about settings that are allowed but probably not meant."""
        yield from self.plan.equal_arms
        specs = [run.spec for run in self.plan.runs]
        yield from dict.fromkeys(line for spec in specs for line in spec.method.without_effect(spec.train))
        for task in {repr(run.spec.task): run.spec.task for run in self.unfinished}.values():
            yield from task.cautions()
        if wild := [spec.train.lr for spec in specs if spec.train.lr >= WILD]:
            yield (
                f"train.lr={max(wild):g}: AdamW changes every weight by about that much in a gradient step, which "
                f"destroys a policy; the default is {Train.lr:g}"
            )

    @cached_property
    def seconds(self) -> float:
        """Seconds until the last run ends."""
        return self.loading + makespan([run.seconds_left for run in self.runs.values()], self.parallel)

    @property
    def loading(self) -> float:
        """Seconds until the first worker of this machine has loaded its libraries; 0 if none is to be started."""
        return LOADING_SECONDS if any(run.spec.cluster.launcher == "local" for run in self.unfinished) else 0.0

    @cached_property
    def basis(self) -> str:
        """The source of the estimated seconds."""
        return self.speeds.basis(run.spec for run in self.plan.runs)


def forecast(plan: Plan) -> Forecast:
    """What the runs of `plan` will take here."""
    home, bases = location(), set[str]()
    speeds = Speeds(home)
    # All arms of one seed come before the next seed, so that a plan that is cut off has whole comparisons.
    compared: dict[tuple[str, str, int, int], list[PlannedRun]] = {}
    for planned in plan.runs:
        key = (planned.spec.model.name, planned.spec.regime, planned.spec.seed_of_base, planned.spec.seed)
        compared.setdefault(key, []).append(planned)
    planned_runs = chain.from_iterable(compared.values())
    runs = {planned.spec.run_id: _expected(planned, home, speeds, bases) for planned in planned_runs}
    in_table = [runs[planned.spec.run_id] for planned in plan.runs]
    return Forecast(plan, home, runs, in_table, [run.estimate for run in in_table if run.state != "done"], speeds)


def _expected(run: PlannedRun, home: Path, speeds: Speeds, bases: set[str]) -> Expected:
    """bases: ids of the base policies that other runs are expected to make; the id of this run's is added."""
    spec, folder = run.spec, home / "runs" / run.spec.run_id
    state, estimate = attempts.state(folder, spec), cost.estimate(spec)
    factor = speeds.factor(estimate) or 1.0
    gpus = estimate.gpus and replace(estimate.gpus, seconds=estimate.gpus.seconds * factor)
    if state == "done":
        return Expected(run, folder, state, 0, estimate, gpus, 0.0, 0.0, 0.0)
    step, evaluation = Tracker(folder).read().step, factor * estimate.evaluation
    start = START_SECONDS + (estimate.warmup if estimate.warmup and makes_base(home, spec, bases) else 0.0)
    left = start + factor * estimate.training * (1 - step / spec.train.steps)
    return Expected(run, folder, state, step, estimate, gpus, left, start + (0.0 if step else evaluation), evaluation)


def makespan(seconds: Sequence[float], parallel: int) -> float:
    """Seconds until the last run ends, with `parallel` workers that take the runs in order."""
    workers = [0.0] * max(1, min(parallel, len(seconds)))
    for run in seconds:
        heapq.heapreplace(workers, workers[0] + run)
    return max(workers)
