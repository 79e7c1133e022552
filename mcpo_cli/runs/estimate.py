"""How long runs take: a cost model, corrected by the runs that the home already holds."""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from mcpo_cli.config.schema import Model, RunSpec
from mcpo_cli.runs import catalog
from mcpo_cli.runs.attempts import TIERS, eval_steps
from mcpo_cli.runs.journal import Journal, read_json

SECONDS_A_TOKEN = 1.5e-5
SECONDS_A_TOKEN_AND_PARAMETER = 7.8e-11
"""A forward pass: the line through the sampling rates of toy-s (43k tokens/s) and toy-m (20k), one thread, on a
busy machine with two AMD EPYC cores."""
START_SECONDS = 8.0
"""A worker's start, there: imports and the base policy."""
WARMUP_STEPS = 300
"""Steps that a warm-up typically needs to reach its accuracy."""
SAMPLING_ROUNDS = 2
"""Batches that dynamic sampling draws to fill one."""
BACKWARD = 3
"""Forward and backward pass, in forward passes."""


class Estimator:
    """Seconds of runs. `basis` says what the estimates rest on."""

    def __init__(self, home: Path) -> None:
        seconds: dict[tuple[str, str], float] = defaultdict(float)
        modelled: dict[tuple[str, str], float] = defaultdict(float)
        counted: dict[tuple[str, str], int] = defaultdict(int)
        for run in catalog.runs(home):
            statuses = [read_json(attempt / "status.json") for attempt in Journal(run.folder).attempts()]
            # The file's word is enough for an estimate; the proof would read every record.
            if statuses and statuses[-1]["state"] == "done":
                seconds[_kind(run.spec)] += sum(status["updated"] - status["started"] for status in statuses)
                modelled[_kind(run.spec)] += model_seconds(run.spec)
                counted[_kind(run.spec)] += 1
        self._counted = counted
        self._factor = {kind: seconds[kind] / modelled[kind] for kind in seconds}

    def seconds(self, spec: RunSpec, done_steps: int = 0) -> float:
        """Expected seconds of the steps that are left of one run."""
        share = 1 - done_steps / spec.train.steps
        return model_seconds(spec) * self._factor.get(_kind(spec), 1.0) * share

    def basis(self, specs: Iterable[RunSpec]) -> str:
        """What the estimates of `specs` rest on, in words."""
        kinds = {_kind(spec) for spec in specs}
        measured = kinds & self._factor.keys()
        if not measured:
            return "from the cost model"
        basis = f"from {sum(self._counted[kind] for kind in measured)} done run(s) here"
        return basis if measured == kinds else f"{basis}, and from the cost model for other models"


def model_seconds(spec: RunSpec) -> float:
    """The cost model: tokens that pass through the model, times a fixed cost and one a parameter."""
    length = spec.task.min_ops + spec.task.max_ops
    batch = spec.train.prompts * spec.train.rollouts * length
    rounds = SAMPLING_ROUNDS if spec.method.dynamic_sampling else 1
    training = spec.train.steps * batch * (rounds + BACKWARD)
    evaluation = len(eval_steps(spec)) * TIERS * spec.eval.problems * spec.eval.samples * length
    warmup_steps = min(WARMUP_STEPS, spec.warmup.max_steps) if spec.warmup.target_accuracy > 0 else 0
    warmup = warmup_steps * spec.warmup.batch * 2 * length * BACKWARD
    seconds_a_token = SECONDS_A_TOKEN + SECONDS_A_TOKEN_AND_PARAMETER * parameters(spec.model)
    return START_SECONDS + seconds_a_token * (training + evaluation + warmup)


def parameters(model: Model) -> int:
    """Weights of the transformer's layers; the toy vocabulary adds next to nothing."""
    attention = 4 * model.hidden * model.heads * model.head_dim
    return model.layers * (attention + 3 * model.hidden * model.mlp)


def makespan(seconds: Sequence[float], parallel: int) -> float:
    """Seconds until the last of some runs ends, `parallel` at a time, each taken in order by the first free worker."""
    workers = [0.0] * parallel
    for run in seconds:
        heapq.heapreplace(workers, workers[0] + run)
    return max(workers)


def _kind(spec: RunSpec) -> tuple[str, str]:
    return spec.scale, spec.model.name
