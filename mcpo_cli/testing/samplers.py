"""Requirements on every sampler, built in or not. `mcpo components check sampler NAME` runs them on a simulated policy.

>>> from mcpo_cli.prompt_samplers import get
>>> [outcome.name for outcome in check_sampler(get("review")) if not outcome.passed]
[]
"""

import copy
import dataclasses
import functools
import json
import random
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file, save_file

from mcpo_cli import methods, tasks
from mcpo_cli.backends.drawing import Drawing, TrainingStream, starved
from mcpo_cli.backends.local import checkpoint
from mcpo_cli.config import contradictions, presets
from mcpo_cli.config.schema import RunSpec, Train
from mcpo_cli.errors import RunFailed
from mcpo_cli.prompt_samplers import Group, Sampler, State
from mcpo_cli.tasks import Task
from mcpo_cli.testing.outcomes import CheckOutcome, named, outcomes

STEPS = 24
"""Global steps of a simulated run: with POOL problems, several epochs."""
POOL, PROMPTS, ROLLOUTS, REFILLS = 48, 8, 4, 20


@dataclass(frozen=True)
class Simulated:
    """A global step of a simulated run."""

    cursor: int
    """The cursor before the step."""
    state: State
    """The sampler's state before the step."""
    groups: Sequence[Group]
    batch: Sequence[int]
    """Indices of the groups that are trained on."""


def check_sampler(sampler: Sampler) -> list[CheckOutcome]:
    """Every check on `sampler`, in order; a failed check does not stop the others."""
    return outcomes(SAMPLER_CHECKS, sampler)


def name_and_options(sampler: Sampler) -> None:
    """The name can be in settings, and the options agree with each other."""
    assert re.fullmatch(r"[A-Za-z0-9._-]+", sampler.name), f"name {sampler.name!r}"
    for message, _ in contradictions.of(_spec(sampler)):
        raise AssertionError(message)


def every_step_gets_a_batch(sampler: Sampler) -> None:
    """Each step gets a whole batch; a sampler without a filter rolls no more prompts than that."""
    for step in _run(sampler):
        rollouts = sum(group.rollouts for group in step.groups)
        assert rollouts == ROLLOUTS * len(step.groups), f"{rollouts} rollouts of {len(step.groups)} prompts"
        assert len(step.batch) == PROMPTS, f"a batch of {len(step.batch)} prompts, not {PROMPTS}"
        assert sampler.filters or len(step.groups) == PROMPTS, f"{len(step.groups)} groups without a filter"


def budgets_are_kept(sampler: Sampler) -> None:
    """Where no group is wanted, a step ends once it has rolled `train.prompts` x (1 + `train.max_refills`) prompts."""
    spec = _spec(sampler)
    spec = dataclasses.replace(spec, train=dataclasses.replace(spec.train, max_refills=2))
    drawing = Drawing(spec, _stream(), 1, 0, {})
    sentence = _said_while_nothing_is_wanted(drawing)
    expected = starved(1, len(drawing.groups), spec).message if sampler.filters else ""
    assert sentence == expected, sentence or "it fills a batch with groups that nobody wants"
    assert len(drawing.groups) <= 3 * PROMPTS, f"{len(drawing.groups)} prompts rolled, of at most {3 * PROMPTS}"


def no_prompt_is_twice_in_a_batch(sampler: Sampler) -> None:
    """No problem is in a batch twice, unless the stream itself brought it twice."""
    for step in _run(sampler):
        repeats = [step.groups[index] for index in step.batch if step.groups[index].position < step.cursor]
        numbers = [step.groups[index].number for index in step.batch]
        doubles = [group.number for group in repeats if numbers.count(group.number) > 1]
        assert not doubles, f"a prompt that was brought back is in the batch twice: number {doubles[0]}"


def draws_are_deterministic(sampler: Sampler) -> None:
    """The same draws every time, whatever other code does with the random numbers that all share."""
    random.seed(1)
    first_run = _run(sampler)
    random.seed(2)
    assert _run(sampler) == first_run, "it draws other prompts the second time"


def nothing_is_changed_in_place(sampler: Sampler) -> None:
    """`draw` and `after` leave the state that they get as it is."""
    for step in _run(sampler):
        state = copy.deepcopy(dict(step.state))
        _step(sampler, 1 + STEPS, step.cursor, step.state)
        assert step.state == state, "the state is changed in place"


def only_declared_state(sampler: Sampler) -> None:
    """The state is columns of numbers with the same names after every step; the object itself remembers nothing."""
    options = repr(sampler)
    run = _run(sampler)
    names = [sorted(step.state) for step in run[1:]]
    assert all(step_names == names[0] for step_names in names), "the state's names change from step to step"
    assert repr(sampler) == options, "its options change while it draws"
    second_run = _run(dataclasses.replace(sampler))
    assert second_run == run, "it remembers something outside of its state"


def a_resumed_run_draws_the_same(sampler: Sampler) -> None:
    """From the checkpoint of any step, written and read as either backend does, a new object draws the same."""
    run = _run(sampler)
    for step in range(1, STEPS, 5):
        for backend, state in (("local", _written(run[step].state)), ("verl", _as_json(run[step].state))):
            replay = _run(dataclasses.replace(sampler), step, run[step].cursor, state)
            assert replay == run[step:], f"resumed after step {step} with backend={backend}, it draws other prompts"


SAMPLER_CHECKS = named(
    name_and_options,
    every_step_gets_a_batch,
    budgets_are_kept,
    no_prompt_is_twice_in_a_batch,
    draws_are_deterministic,
    nothing_is_changed_in_place,
    only_declared_state,
    a_resumed_run_draws_the_same,
)
"""Each check by its name in words; its docstring states the requirement."""


def _spec(sampler: Sampler) -> RunSpec:
    train = Train(steps=STEPS, prompts=PROMPTS, rollouts=ROLLOUTS, mini_batch=PROMPTS, max_refills=REFILLS)
    method = methods.get("grpo", dynamic_sampling=sampler.filters)
    return RunSpec(method, _task(), train=train, sampler=sampler)


@functools.cache
def _stream() -> TrainingStream:
    return TrainingStream(_task().problems(Train(), lambda messages: True), 0)


def _task() -> Task:
    """The default task, with problems that come again."""
    return tasks.get(str(presets.default("task")), pool=POOL)


def _said_while_nothing_is_wanted(drawing: Drawing) -> str:
    """The error that ends a step in which every group is all wrong; empty if its batch becomes full."""
    try:
        while not drawing.is_full:
            drawing.add([0.0] * len(drawing.draw()))
    except RunFailed as error:
        return error.message
    return ""


def _run(sampler: Sampler, last_step: int = 0, cursor: int = 0, state: State | None = None) -> list[Simulated]:
    """The steps after step `last_step` of a simulated run."""
    steps, state = list[Simulated](), state or {}
    for step in range(last_step + 1, STEPS + 1):
        simulation, cursor, next_state = _step(sampler, step, cursor, state)
        steps.append(simulation)
        state = next_state
    return steps


def _step(sampler: Sampler, step: int, cursor: int, state: State) -> tuple[Simulated, int, State]:
    """A global step, and the cursor and the state after it."""
    drawing = Drawing(_spec(sampler), _stream(), step, cursor, state)
    while not drawing.is_full:
        problems = drawing.draw()
        pairs = zip(problems, drawing.rollouts, strict=True)
        drawing.add([_accuracy(problem.number, step, rollouts) for problem, rollouts in pairs])
    return Simulated(cursor, state, tuple(drawing.groups), drawing.batch), drawing.cursor, drawing.state()


def _accuracy(number: int, step: int, rollouts: int) -> float:
    """A group's accuracy, which depends on the problem, easy or hard, and on the step; all values from 0 to 1 occur."""
    ability = random.Random(number).random() * 1.4 - 0.2 + 0.01 * step
    rng = random.Random(f"{number}:{step}")
    return sum(rng.random() < ability for _ in range(rollouts)) / rollouts


def _written(state: State) -> State:
    """The state as a resumed run of the local backend has it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sampler.safetensors"
        save_file(checkpoint.as_tensors(state), path)
        return checkpoint.as_columns(load_file(path))


def _as_json(state: State) -> State:
    """The state as a resumed run under verl has it."""
    columns: State = json.loads(json.dumps(dict(state)))
    return columns
