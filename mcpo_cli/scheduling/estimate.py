"""How long runs take: a cost model, corrected by the runs that the home already holds."""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mcpo_cli.backends import cost
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import RunFailed
from mcpo_cli.runs import catalog
from mcpo_cli.runs.attempts import eval_problems, eval_steps
from mcpo_cli.runs.journal import Journal, last_row, lines_from, read_json

SECONDS_A_TOKEN = 9.7e-6
SECONDS_A_TOKEN_AND_PARAMETER = 5.4e-11
"""Sampling: the line through toy-s (65k tokens/s) and toy-m (30k), two runs at a time with one thread each on an
AMD EPYC with two cores."""
START_SECONDS = 5.0
"""A worker's start, there: imports."""
WARMUP_STEPS = 450
"""Steps that a warm-up typically needs to reach its accuracy."""
UPDATE = 1
"""The gradient steps, in samplings of the batch: half of the sequences bear no gradient."""
WARMUP_PASSES = 2
"""A step of supervised training, in samplings of its tokens."""


class Estimator:
    """Seconds of runs. `basis` says what the estimates rest on."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._paid: set[str] = set()
        seconds: dict[tuple[str, str], float] = defaultdict(float)
        modelled: dict[tuple[str, str], float] = defaultdict(float)
        counted: dict[tuple[str, str], int] = defaultdict(int)
        for run in catalog.runs(home):
            for first, last in _timed(run.folder):
                # Clocks are set back at times.
                if (taken := last["time"] - first["time"]) > 0:
                    share = (last["step"] - first["step"]) / run.spec.train.steps
                    seconds[_kind(run.spec)] += taken
                    modelled[_kind(run.spec)] += share * training_seconds(run.spec)
                    counted[_kind(run.spec)] += 1
        self._counted = counted
        self._factor = {kind: seconds[kind] / modelled[kind] for kind in seconds}

    def seconds(self, spec: RunSpec, done_steps: int = 0) -> float:
        """Expected seconds that are left of one run.

        A base policy that is not in the cache counts once: for the first run asked about that needs it.
        """
        factor = self._factor.get(_kind(spec), 1.0)
        training = training_seconds(spec) * (1 - done_steps / spec.train.steps)
        cached = (self._home / "cache" / "base" / spec.base_id / "manifest.json").exists()
        warmup = 0.0 if cached or spec.base_id in self._paid else warmup_seconds(spec)
        self._paid.add(spec.base_id)
        return START_SECONDS + factor * (training + warmup)

    def basis(self, specs: Iterable[RunSpec]) -> str:
        """What the estimates of `specs` rest on, in words."""
        kinds = {_kind(spec) for spec in specs}
        measured = kinds & self._factor.keys()
        if not measured:
            return "from the cost model"
        basis = f"from {sum(self._counted[kind] for kind in measured)} done run(s) here"
        return basis if measured == kinds else f"{basis}, and from the cost model for other models"


def _timed(run_dir: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """First and last row of each attempt that says that it is done; of none, where one is damaged."""
    # The file's word is enough for an estimate; the proof would read every record.
    with suppress(RunFailed):
        for attempt in Journal(run_dir).attempts():
            path = attempt / "metrics.jsonl"
            first, last = next((row for row, _ in lines_from(path, 0)), None), last_row(path)
            if first and last and first != last and read_json(attempt / "status.json")["state"] == "done":
                yield first, last


def training_seconds(spec: RunSpec) -> float:
    """The cost model of all global steps, rerolls and evaluations: on GPUs see `cost`, else tokens, times a fixed cost
    and one a parameter."""
    if on_gpus(spec):
        return cost.of(spec).gpu_seconds / (spec.cluster.nodes * spec.cluster.gpus)
    _, length = spec.task.expected_tokens(spec.train.max_response)
    batch = spec.train.prompts * spec.train.rollouts * length
    rounds = cost.SAMPLING_ROUNDS if spec.method.dynamic_sampling else 1
    evaluation = len(eval_steps(spec)) * eval_problems(spec) * spec.eval.samples * length
    rerolls = cost.rerolled(spec) * spec.train.rollouts * length
    return _seconds_a_token(spec) * (spec.train.steps * batch * (rounds + UPDATE) + rerolls + evaluation)


def warmup_seconds(spec: RunSpec) -> float:
    """The cost model of making the base policy: prompts and their answers."""
    if spec.model.path:
        return 0.0
    steps = min(WARMUP_STEPS, spec.warmup.max_steps) if spec.warmup.target_accuracy > 0 else 0
    tokens = spec.warmup.batch * sum(spec.task.expected_tokens(spec.train.max_response))
    return _seconds_a_token(spec) * steps * tokens * WARMUP_PASSES


def _seconds_a_token(spec: RunSpec) -> float:
    return SECONDS_A_TOKEN + SECONDS_A_TOKEN_AND_PARAMETER * cost.parameters(spec)


def on_gpus(spec: RunSpec) -> bool:
    """Whether `spec` is for a machine with GPUs, of which `cost` speaks."""
    return spec.backend == "verl" and spec.compute.device != "cpu"


def makespan(seconds: Sequence[float], parallel: int) -> float:
    """Seconds until the last of some runs ends, `parallel` at a time, each taken in order by the first free worker."""
    workers = [0.0] * parallel
    for run in seconds:
        heapq.heapreplace(workers, workers[0] + run)
    return max(workers)


def _kind(spec: RunSpec) -> tuple[str, str]:
    return spec.scale, spec.model.name
