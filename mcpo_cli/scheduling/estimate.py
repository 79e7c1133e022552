"""Estimates how long runs take: a cost model, scaled by measured times of completed runs in this home."""

import copy
import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcpo_cli.backends import cost
from mcpo_cli.config.plan import Cell, Plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError, RunFailed
from mcpo_cli.runs import attempts, catalog
from mcpo_cli.runs.attempts import eval_problems
from mcpo_cli.runs.journal import Journal, last_row, lines_from, read_json

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


class Estimator:
    """Estimates the seconds that runs take. `basis` names the source of the estimates."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._paid: set[str] = set()
        self._seconds: dict[Kind, float] = defaultdict(float)
        self._modelled: dict[Kind, float] = defaultdict(float)
        self._counted: dict[Kind, int] = defaultdict(int)
        for run in catalog.runs(home):
            self.learn(run.folder, run.spec)

    def learn(self, run_dir: Path, spec: RunSpec) -> None:
        """Take into account how long a run took, if it is done."""
        for first, last in _timed(run_dir):
            # System clocks are sometimes set back.
            if (taken := last["time"] - first["time"]) > 0:
                share = (last["step"] - first["step"]) / spec.train.steps
                self._seconds[_kind(spec)] += taken
                self._modelled[_kind(spec)] += share * training_seconds(spec)
                self._counted[_kind(spec)] += 1

    def again(self) -> "Estimator":
        """The same, for other estimates: no base policy is counted yet."""
        other = copy.copy(self)
        other._paid = set()
        return other

    def seconds(self, spec: RunSpec, done_steps: int = 0) -> float:
        """Expected seconds until the run ends.

        A base policy that is not in the cache is counted once, for the first estimated run that needs it.
        """
        kind = _kind(spec)
        factor = self._seconds[kind] / self._modelled[kind] if kind in self._counted else 1.0
        training = training_seconds(spec) * (1 - done_steps / spec.train.steps)
        cached = (self._home / "cache" / "base" / spec.base_id / "manifest.json").exists()
        warmup = 0.0 if cached or spec.base_id in self._paid else warmup_seconds(spec)
        self._paid.add(spec.base_id)
        return START_SECONDS + factor * (training + warmup)

    def basis(self, specs: Iterable[RunSpec]) -> str:
        """The source of the estimates of `specs`, in words."""
        kinds = {_kind(spec) for spec in specs}
        measured = kinds & self._counted.keys()
        if not measured:
            return "from the cost model"
        basis = f"from {sum(self._counted[kind] for kind in measured)} done run(s) here"
        return basis if measured == kinds else f"{basis}, and from the cost model for other models"


def _timed(run_dir: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """First and last row of each attempt whose status is done, up to the first damaged one."""
    # The status file is enough for an estimate; verifying it would read every record.
    with suppress(RunFailed):
        for attempt in Journal(run_dir).attempts():
            path = attempt / "metrics.jsonl"
            first, last = next((row for row, _ in lines_from(path, 0)), None), last_row(path)
            if first and last and first != last and read_json(attempt / "status.json")["state"] == "done":
                yield first, last


def training_seconds(spec: RunSpec) -> float:
    """Modelled seconds of all global steps, rerolls and evaluations: on GPUs from `cost`, else from the token count."""
    if on_gpus(spec):
        return cost.of(spec).gpu_seconds / (spec.cluster.nodes * spec.cluster.gpus)
    _, length = spec.task.expected_tokens(spec.train.max_response)
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
    return 0.0 if attempts.state(folder, spec) == "done" else estimator.seconds(spec)


def _kind(spec: RunSpec) -> Kind:
    return spec.scale, spec.model.name
