"""Estimates how long runs take: a cost model, corrected by how long the steps that are done in this home have taken.

`mean_response` is the mean length of a response in tokens; None means what the task assumes.
"""

import copy
import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mcpo_cli.backends import cost
from mcpo_cli.backends.local import needs
from mcpo_cli.config.plan import Cell, Plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError, RunFailed
from mcpo_cli.runs import attempts, bases, catalog
from mcpo_cli.runs.attempts import eval_problems
from mcpo_cli.runs.journal import Journal, last_row, lines_from
from mcpo_cli.scheduling.progress import Tracker

SECONDS_A_TOKEN = 9.7e-6
SECONDS_A_TOKEN_AND_PARAMETER = 5.4e-11
"""Sampling time: a linear fit through toy-s (65k tokens/s) and toy-m (30k), measured with two parallel runs of one
thread each on an AMD EPYC with two cores."""
START_SECONDS = 5.0
"""Start-up time of a worker on that machine (imports)."""
WARMUP_STEPS = 450
"""Typical number of steps until a warm-up reaches its target accuracy."""
UPDATE = 1
"""Update cost relative to sampling one batch: half of the sequences have no gradient."""
WARMUP_PASSES = 3.5
"""Cost of a supervised training step, which is in double precision, relative to sampling its tokens."""


Kind = tuple[str, str]
"""Scale and model: runs of one kind err alike."""


@dataclass(frozen=True)
class Measured:
    """The seconds that the steps of one run have taken, and those that the cost model gives them."""

    taken: float
    modelled: float


class Estimator:
    """Estimates the time and the cost of runs. `basis` names the source of the estimates."""

    def __init__(self, home: Path, mean_response: float | None = None) -> None:
        self._home = home
        self._mean_response = mean_response
        self._paid: set[str] = set()
        self._measured: dict[Kind, dict[str, Measured]] = defaultdict(dict)
        for run in catalog.runs(home):
            self.learn(run.folder, run.spec)

    def learn(self, run_dir: Path, spec: RunSpec) -> None:
        """Take into account how long the steps of a run have taken that are done so far, whether it goes on or not.

        To be called again when it has done more.
        """
        taken, steps = 0.0, 0
        for first, last in _timed(run_dir):
            # System clocks are sometimes set back.
            if last["time"] > first["time"]:
                taken += last["time"] - first["time"]
                steps += last["step"] - first["step"]
        if steps:
            modelled = steps / spec.train.steps * training_seconds(spec, self._mean_response)
            self._measured[_kind(spec)][spec.run_id] = Measured(taken, modelled)

    def again(self) -> "Estimator":
        """The same, for other estimates: no base policy is counted yet."""
        other = copy.copy(self)
        other._paid = set()
        return other

    def seconds(self, spec: RunSpec, done_steps: int = 0) -> float:
        """Expected seconds until the run ends.

        A base policy that has to be made is counted once, for the first estimated run that needs it.
        """
        training = training_seconds(spec, self._mean_response) * (1 - done_steps / spec.train.steps)
        made = bases.at_hand(self._home, spec) or spec.base_id in self._paid
        warmup = 0.0 if made else warmup_seconds(spec)
        self._paid.add(spec.base_id)
        return START_SECONDS + (self._factor(spec) or 1.0) * (training + warmup)

    def cost(self, spec: RunSpec) -> cost.Cost:
        """The cost of the whole run on GPUs, as measured where steps of its kind are done here."""
        modelled, factor = cost.of(spec, self._mean_response), self._factor(spec)
        return modelled.corrected(factor) if factor else modelled

    def cost_basis(self, spec: RunSpec) -> list[str]:
        """The source of `cost`, in sentences of which several runs may share one."""
        basis, factor = [*cost.basis(spec, self._mean_response)], self._factor(spec)
        if factor:
            middle = f"{factor:.2f} times the middle of that range"
            basis.append(f"GPU-hours of {spec.run_id}: {middle}, {self.basis([spec])}")
        return basis

    def basis(self, specs: Iterable[RunSpec]) -> str:
        """The source of the estimated seconds of `specs`, in words."""
        kinds = {_kind(spec) for spec in specs}
        measured = kinds & self._measured.keys()
        if not measured:
            return "from the cost model"
        basis = f"from the steps that {sum(len(self._measured[kind]) for kind in measured)} run(s) have done here"
        return basis if measured == kinds else f"{basis}, and from the cost model for other models"

    def _factor(self, spec: RunSpec) -> float | None:
        """How many times the modelled seconds the run takes: by its own steps, or else by those of its kind."""
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


def training_seconds(spec: RunSpec, mean_response: float | None = None) -> float:
    """Modelled seconds of all global steps, rerolls and evaluations: on GPUs from `cost`, else from the token count."""
    if on_gpus(spec):
        return cost.of(spec, mean_response).gpu_seconds / (spec.cluster.nodes * spec.cluster.gpus)
    if has_needs(spec):
        return needs.seconds(spec, mean_response)
    _, length = cost.lengths(spec, mean_response)
    batch = spec.train.prompts * spec.train.rollouts * length
    evaluation = cost.evaluations(spec) * eval_problems(spec) * spec.eval.samples * length
    rerolls = cost.rerolled(spec) * spec.train.rollouts * length
    return _seconds_a_token(spec) * (spec.train.steps * batch * (cost.rounds(spec) + UPDATE) + rerolls + evaluation)


def warmup_seconds(spec: RunSpec) -> float:
    """Modelled seconds of training the base policy on prompts and their answers."""
    if spec.model.path:
        return 0.0
    steps = min(WARMUP_STEPS, spec.warmup.max_steps) if spec.warmup.target_accuracy > 0 else 0
    tokens = spec.warmup.batch * sum(spec.task.expected_tokens(spec.train.max_response))
    return _seconds_a_token(spec) * steps * tokens * WARMUP_PASSES


def _seconds_a_token(spec: RunSpec) -> float:
    return SECONDS_A_TOKEN + SECONDS_A_TOKEN_AND_PARAMETER * cost.parameters(spec)


def on_gpus(spec: RunSpec) -> bool:
    """Whether `spec` trains on GPUs, which `cost` models."""
    return spec.backend == "verl" and spec.compute.device != "cpu"


def has_needs(spec: RunSpec) -> bool:
    """Whether `spec` trains an existing model on the local engine, whose memory and disk `needs` models."""
    return bool(spec.model.path) and spec.backend == "local"


def makespan(seconds: Sequence[float], parallel: int) -> float:
    """Seconds until the last run ends, with `parallel` workers that take the runs in order."""
    workers = [0.0] * parallel
    for run in seconds:
        heapq.heapreplace(workers, workers[0] + run)
    return max(workers)


def within(plan: Plan, seconds: float, home: Path, parallel: int) -> Plan:
    """The first runs of `plan` that are expected to end within `seconds`, those that are done included.

    Runs of all arms that share model, regime, seeds and point of a design are taken together: without one of them the
    others compare nothing. In a design, the first points are spread as evenly as all are.

    Raises:
        ConfigError: the first of these do not fit.
    """
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in plan.cells:
        spec = cell.spec
        key = (cell.point, spec.model.name, spec.regime, spec.seed_of_base, spec.seed)
        groups.setdefault(key, []).append(cell)
    estimator, taken, left = Estimator(home), list[Cell](), list[float]()
    for group in groups.values():
        more = [_left(cell.spec, home, estimator) for cell in group]
        if (needed := makespan([*left, *more], parallel)) > seconds:
            if not taken:
                raise ConfigError(
                    f"the first {len(group)} runs take about {needed:.0f} s", fix=f"--budget {needed:.0f}s"
                )
            break
        taken, left = [*taken, *group], [*left, *more]
    return replace(plan, cells=tuple(taken))


def _left(spec: RunSpec, home: Path, estimator: Estimator) -> float:
    folder = home / "runs" / spec.run_id
    return 0.0 if attempts.state(folder, spec) == "done" else estimator.seconds(spec, Tracker(folder, spec).read().step)


def _kind(spec: RunSpec) -> Kind:
    return spec.scale, spec.model.name
