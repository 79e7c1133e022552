"""The conformance kit of samplers, and the errors of a step whose sampler breaks the contract."""

import random
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from mcpo_cli import methods, prompt_samplers, tasks
from mcpo_cli.backends.drawing import Drawing, TrainingStream
from mcpo_cli.config.schema import RunSpec, Train
from mcpo_cli.errors import RunFailed
from mcpo_cli.prompt_samplers import Draw, Finished, Refill, Request, Sampler, State
from mcpo_cli.prompt_samplers.greso import Greso
from mcpo_cli.prompt_samplers.mopps import Mopps
from mcpo_cli.prompt_samplers.pairing import Pairing
from mcpo_cli.prompt_samplers.retention import Replay, Review
from mcpo_cli.testing import SAMPLER_CHECKS, check_sampler
from tests.errors import refused

VARIANTS = (
    Review(share=0.9, interval=1, window=1),
    Replay(share=0.9, solved=0.25),
    Greso(explore=0.05, first=1, target=0.9),
    Mopps(candidates=1, discount=1.0),
    Pairing(share=1.0, rare=8),
)


@pytest.mark.parametrize(
    "sampler",
    [
        *(kind() for kind in prompt_samplers.registry().values()),
        *(pytest.param(variant, marks=pytest.mark.slow) for variant in VARIANTS),
    ],
    ids=repr,
)
def test_samplers_pass(sampler: Sampler) -> None:
    found = check_sampler(sampler)
    assert [outcome.name for outcome in found] == list(SAMPLER_CHECKS)
    assert {outcome.name: outcome.detail for outcome in found if not outcome.passed} == {}


@dataclass(frozen=True)
class Sound(Sampler):
    """A correct sampler with a memory; each class below breaks one thing in it."""

    name: ClassVar[str] = "sound"

    def draw(self, request: Request, state: State) -> Draw:
        return Draw.of_fresh(request, request.prompts)

    def after(self, finished: Finished, state: State) -> State:
        return {"steps": [finished.step]}


class Nameless(Sound):
    name: ClassVar[str] = "a b"


class Greedy(Sound):
    def draw(self, request: Request, state: State) -> Draw:
        return Draw.of_fresh(request, request.prompts + 1)


class Insatiable(Sound):
    filters: ClassVar[bool] = True

    def draw(self, request: Request, state: State) -> Draw:
        return Draw.of_fresh(request, request.prompts + (3 if request.budget < request.prompts * 2 else 0))


class Again(Sound):
    """Draws problem 0 of the second epoch again although the stream also has it."""

    def draw(self, request: Request, state: State) -> Draw:
        if request.cursor % 48 or not request.cursor:
            return Draw.of_fresh(request, request.prompts)
        (first,) = request.stream.numbers([request.cursor])
        old = next(place for place in range(48) if request.stream.numbers([place]) == [first])
        return Draw((old, *request.fresh(request.prompts - 1)), request.cursor + request.prompts - 1)


@dataclass(frozen=True)
class Allotting(Sound):
    """Moves rollouts from the second prompt of a batch to the first."""

    uneven_groups: ClassVar[bool] = True
    more: int = 2

    def draw(self, request: Request, state: State) -> Draw:
        counts = [request.rollouts] * request.prompts
        counts[0] += self.more
        counts[1] -= 2
        return Draw(tuple(request.fresh(request.prompts)), request.cursor + request.prompts, tuple(counts))


class Careless(Sound):
    def draw(self, request: Request, state: State) -> Draw:
        start = request.cursor + random.randrange(100)
        return Draw(tuple(range(start, start + request.prompts)), start + request.prompts)


class InPlace(Sound):
    def after(self, finished: Finished, state: State) -> State:
        if state:
            state["steps"].append(finished.step)
        return {"steps": list(state.get("steps", []))}


class Renaming(Sound):
    def after(self, finished: Finished, state: State) -> State:
        return {f"step_{finished.step}": [0]}


@dataclass(frozen=True)
class Secretive(Sound):
    seen: list[int] = field(default_factory=list)

    def draw(self, request: Request, state: State) -> Draw:
        self.seen.append(request.step)
        return Draw.of_fresh(request, request.prompts)


class Untyped(Sound):
    """Has a state of truth values, which a checkpoint would turn into numbers."""

    def after(self, finished: Finished, state: State) -> State:
        return {"steps": [True]}


class Hidden(Sound):
    """Counts a run's draws outside of its state."""

    count: ClassVar[list[int]] = []

    def draw(self, request: Request, state: State) -> Draw:
        if request.step == 1:
            self.count.clear()
        self.count.append(request.step)
        start = request.cursor + len(self.count) % 5
        return Draw(tuple(range(start, start + request.prompts)), start + request.prompts)


@pytest.mark.parametrize(
    ("sampler", "failing"),
    [
        (Nameless(), "name and options"),
        (Greedy(), "every step gets a batch"),
        (Insatiable(), "budgets are kept"),
        (Again(), "no prompt is twice in a batch"),
        (Careless(), "draws are deterministic"),
        (InPlace(), "nothing is changed in place"),
        (Renaming(), "only declared state"),
        (Secretive(), "only declared state"),
        (Untyped(), "every step gets a batch"),
        (Hidden(), "a resumed run draws the same"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Sampler) else "",
)
def test_each_check_fails_for_a_sampler_that_breaks_its_demand(sampler: Sampler, failing: str) -> None:
    assert failing in {outcome.name for outcome in check_sampler(sampler) if not outcome.passed}


def test_a_sound_sampler_passes() -> None:
    assert [outcome for outcome in check_sampler(Sound()) if not outcome.passed] == []
    assert [outcome for outcome in check_sampler(Allotting()) if not outcome.passed] == []


def drawing(sampler: Sampler, **train: int) -> Drawing:
    settings = Train(**{"prompts": 4, "mini_batch": 4, "max_refills": 2, **train})  # type: ignore[arg-type]
    task = tasks.get("arithmetic", pool=16)
    spec = RunSpec(methods.get("grpo", dynamic_sampling=sampler.filters), task, train=settings, sampler=sampler)
    return Drawing(spec, TrainingStream(task, 0), 1, 0, {})


def test_a_step_that_cannot_be_filled_names_what_to_change() -> None:
    for sampler, fix in ((Refill(), "method.dynamic_sampling=false"), (Greso(), "sampler=uniform")):
        of = drawing(sampler)
        while len(of.groups) < 12:
            of.add([1.0] * len(of.draw()))
        with pytest.raises(RunFailed) as caught:
            of.draw()
        assert str(caught.value.fix).endswith(fix)
    of = drawing(Refill(), max_refills=0)
    of.add([1.0] * len(of.draw()))
    with pytest.raises(RunFailed) as caught:
        of.draw()
    assert str(caught.value.fix).startswith("train.max_refills=1,")


def test_a_pool_that_is_used_up_ends_a_step() -> None:
    of = drawing(Greso(), max_refills=20)
    while len(of.groups) < 16:
        of.add([1.0] * len(of.draw()))
    with refused("run_failed", "sampler=greso", "0 of 4", "16") as caught:
        of.draw()
    assert "task.pool=32" in str(caught.value.fix)


def test_rollouts_that_a_sampler_allots() -> None:
    of = drawing(Allotting(), rollouts=4)
    assert of.rollouts == ()
    of.draw()
    assert of.rollouts == (6, 2, 4, 4)
    of.add([0.5, 1.0, 0.0, 0.25])
    assert [group.rollouts for group in of.groups] == [6, 2, 4, 4]
    plain = drawing(Sound(), rollouts=4)
    plain.draw()
    assert plain.rollouts == [4, 4, 4, 4]


class Silent(Allotting):
    uneven_groups: ClassVar[bool] = False


class Choosy(Allotting):
    filters: ClassVar[bool] = True


@pytest.mark.parametrize(
    ("sampler", "rollouts", "said"),
    [
        (Allotting(more=3), 4, "17 rollouts in all, not 16"),
        (Allotting(), 3, "rollouts, the fewest 1"),
        (Silent(), 4, "`uneven_groups` and no filter"),
        (Choosy(), 4, "`uneven_groups` and no filter"),
    ],
    ids=["another sum", "one rollout", "not declared", "with a filter"],
)
def test_rollouts_that_no_sampler_may_allot(sampler: Sampler, rollouts: int, said: str) -> None:
    with refused("run_failed", f"sampler={sampler.name}", said):
        drawing(sampler, rollouts=rollouts).draw()


def test_a_batch_is_the_first_groups_that_are_kept() -> None:
    of = drawing(Refill())
    of.draw()
    of.add([0.5, 1.0, 0.0, 0.25])
    assert not of.is_full
    of.draw()
    of.add([1.0, 0.5, 0.75, 0.5])
    assert of.is_full
    assert of.batch == [0, 3, 5, 6]
    assert of.cursor == 8
    assert [group.round for group in of.groups] == [0, 0, 0, 0, 1, 1, 1, 1]
