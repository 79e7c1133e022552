"""Estimates the time of runs: that of `workload`, corrected by the measured time of steps done in this home.

`mean_response` is the mean length of a response in tokens; None means what the task assumes.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mcpo_cli import machine
from mcpo_cli.config import existing, space, workload
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError, RunFailed
from mcpo_cli.runs import attempts, catalog, folders
from mcpo_cli.runs.journal import Journal, last_row, lines_from
from mcpo_cli.scheduling.progress import Tracker

Kind = tuple[str, str]
"""Scale and model: estimates for runs of one kind have similar errors."""


@dataclass(frozen=True)
class Measured:
    """The measured and the modelled seconds of the steps of one run."""

    taken: float
    modelled: float


class Estimator:
    """Estimates the time and the cost of runs. `basis` names the source of the estimates."""

    def __init__(self, home: Path, mean_response: float | None = None) -> None:
        self._home = home
        self.mean_response = mean_response
        self._measured: dict[Kind, dict[str, Measured]] = defaultdict(dict)
        for run in catalog.runs(home):
            self.learn(run.folder, run.spec)

    def learn(self, run_dir: Path, spec: RunSpec) -> None:
        """Take into account the time of a run's steps so far, whether it goes on or not.

        To be called again after further steps.
        """
        taken, steps = 0.0, 0
        for first, last in _timed(run_dir):
            # System clocks are sometimes set back.
            if last["time"] > first["time"]:
                taken += last["time"] - first["time"]
                steps += last["step"] - first["step"]
        if steps:
            modelled = steps / spec.train.steps * workload.training_seconds(spec, self.mean_response)
            self._measured[_kind(spec)][spec.run_id] = Measured(taken, modelled)

    def seconds(self, spec: RunSpec, done_steps: int = 0, counted: set[str] | None = None) -> float:
        """Expected seconds until the run ends, with those of making its base policy, if that has to be made.

        counted: base policies that the estimates of other runs have counted; that of `spec` is added.
        """
        warmup = folders.makes_base(self._home, spec, set() if counted is None else counted)
        factor = self.factor(spec) or 1.0
        return workload.seconds_left(spec, self.mean_response, done_steps=done_steps, factor=factor, warmup=warmup)

    def basis(self, specs: Iterable[RunSpec]) -> str:
        """The source of the estimated seconds of `specs`, in words."""
        kinds = {_kind(spec) for spec in specs}
        measured = kinds & self._measured.keys()
        if not measured:
            return "from the cost model"
        basis = f"from the steps that {sum(len(self._measured[kind]) for kind in measured)} run(s) have done here"
        return basis if measured == kinds else f"{basis}, and from the cost model for other models"

    def factor(self, spec: RunSpec) -> float | None:
        """Measured over modelled seconds: of the run's own steps, or else of runs of its kind; None without any."""
        kind = self._measured.get(_kind(spec), {})
        measured = [kind[spec.run_id]] if spec.run_id in kind else kind.values()
        modelled = sum(one.modelled for one in measured)
        return sum(one.taken for one in measured) / modelled if modelled else None


def _timed(run_dir: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """First and last row of each attempt that has several, up to the first damaged one."""
    with suppress(RunFailed):
        for attempt in Journal(run_dir).attempts():
            path = attempt / "metrics.jsonl"
            first, last = next((row for row, _ in lines_from(path, 0)), None), last_row(path)
            if first and last and first != last:
                yield first, last


def makespan(seconds: Sequence[float], parallel: int) -> float:
    """Seconds until the last run ends, with `parallel` workers that take the runs in order."""
    workers = [0.0] * parallel
    for run in seconds:
        heapq.heapreplace(workers, workers[0] + run)
    return max(workers)


def until_the_end(seconds: Sequence[float], parallel: int, elapsed: float = 0.0) -> float:
    """`makespan` of runs that load their libraries once, when the first of them starts, `elapsed` seconds ago."""
    loading = max(0.0, workload.LOADING_SECONDS - elapsed) if any(seconds) else 0.0
    return loading + makespan(seconds, parallel)


def within(plan: Plan, seconds: float, home: Path) -> Plan:
    """The first runs of `plan` that are expected to end within `seconds`, those that are done included.

    Groups of runs are taken whole (`Plan.groups`). In a design, the first points are spread as evenly as all are.

    Raises:
        ConfigError: the first of these do not fit.
    """
    estimator, parallel, bases = Estimator(home), slots(plan), set[str]()
    taken, left = list[PlannedRun](), list[float]()
    for group in plan.groups:
        more = [_planned(cell, home, estimator, bases)[0]["seconds_left"] for cell in group]
        if (needed := until_the_end([*left, *more], parallel)) > seconds:
            if not taken:
                first = f"the first {len(group)} runs take" if len(group) > 1 else "the first run takes"
                why = f"--budget of {seconds:.0f} s: {first} about {math.ceil(needed)} s"
                raise ConfigError(why, fix=f"--budget {math.ceil(needed)}s")
            break
        taken, left = [*taken, *group], [*left, *more]
    return replace(plan, cells=tuple(taken))


@dataclass(frozen=True)
class Forecast:
    """Expected time and cost of the runs of a plan."""

    runs: list[dict[str, Any]]
    """The output of `--dry-run --json` for each run."""
    seconds: float
    """Seconds until the last run ends."""
    parallel: int
    """Number of runs at a time."""
    basis: str
    """The source of the estimated seconds."""
    costs: dict[str, workload.Cost]
    """The estimated costs of the runs on GPUs, by run id."""


def forecast(plan: Plan, home: Path, mean_response: float | None = None) -> Forecast:
    """States of the runs of `plan`, and the remaining time and cost.

    Raises:
        ConfigError: a run's longest response is shorter than `mean_response`.
    """
    specs = [cell.spec for cell in plan.cells]
    limit = min(spec.train.max_response for spec in specs)
    if mean_response is not None and not 1 <= mean_response <= limit:
        longer = f", or train.max_response={math.ceil(mean_response)}" if mean_response > limit else ""
        raise ConfigError(
            f"--mean-length {mean_response:g}: responses have 1 to train.max_response={limit} tokens",
            fix=f"--mean-length {limit // 4 or 1}{longer}",
        )
    estimator, parallel = Estimator(home, mean_response), slots(plan)
    bases, basis = set[str](), estimator.basis(specs)
    # In the order of the scheduler, which decides how long the last worker is alone.
    planned = {cell.spec.run_id: _planned(cell, home, estimator, bases) for group in plan.groups for cell in group}
    seconds = until_the_end([run["seconds_left"] for run, _ in planned.values()], parallel)
    costs = {run_id: cost for run_id, (_, cost) in planned.items() if cost}
    return Forecast([planned[cell.spec.run_id][0] for cell in plan.cells], seconds, parallel, basis, costs)


def _planned(
    cell: PlannedRun, home: Path, estimator: Estimator, bases: set[str]
) -> tuple[dict[str, Any], workload.Cost | None]:
    """The object that `--dry-run --json` prints for a run, and the cost of a run on GPUs.

    bases: the base policies counted so far, see `Estimator.seconds`.
    """
    spec, folder, cost = cell.spec, home / "runs" / cell.spec.run_id, None
    state, left = attempts.state(folder, spec), 0.0
    if state != "done":
        left = estimator.seconds(spec, Tracker(folder, spec).read().step, bases)
    about: dict[str, Any] = {"run_id": spec.run_id, "arm": cell.arm, **spec.about}
    about |= {"state": state, "seconds_left": round(left, 1)}
    if workload.existing_on_local(spec):
        about |= {"memory_bytes": round(space.memory(spec)), "disk_bytes": round(space.disk(spec))}
    about["spec"] = spec.to_dict()
    if workload.on_gpus(spec):
        how = f"middle of that range, {estimator.basis([spec])}"
        cost = workload.cost(spec, estimator.mean_response).corrected(spec, estimator.factor(spec), how)
        about["cost"] = cost.to_json()
    existing.check_folder(spec.model)
    return about, cost


def slots(plan: Plan) -> int:
    """Number of parallel runs: `compute.parallel`, or as many as fill the available cores.

    By default a verl run has the machine to itself, and all SLURM jobs are submitted at once.
    """
    spec = plan.cells[0].spec
    compute = spec.compute
    if spec.cluster.launcher == "slurm":
        return compute.parallel or len(plan.cells)
    if spec.backend == "verl":
        return compute.parallel or 1
    return compute.parallel or max(1, machine.cores() // compute.threads)


def _kind(spec: RunSpec) -> Kind:
    return spec.scale, spec.model.name
