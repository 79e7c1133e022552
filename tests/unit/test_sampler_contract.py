"""Samplers: their conformance kit, steps whose sampler breaks the contract, and the settings that choose one."""

import dataclasses
import random
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from mcpo_cli import methods, prompt_samplers, tasks
from mcpo_cli.backends.drawing import Drawing, TrainingStream
from mcpo_cli.backends.verl import checks
from mcpo_cli.config import arm_names
from mcpo_cli.config.forking import changed
from mcpo_cli.config.load import from_dict, load
from mcpo_cli.config.schema import RunSpec, Train
from mcpo_cli.errors import RunFailed
from mcpo_cli.prompt_samplers import Draw, Finished, Refill, Request, Sampler, State, Uniform
from mcpo_cli.prompt_samplers.greso import Greso
from mcpo_cli.prompt_samplers.mopps import Mopps
from mcpo_cli.prompt_samplers.pairing import Pairing
from mcpo_cli.prompt_samplers.retention import Replay, Review
from mcpo_cli.testing import SAMPLER_CHECKS, check_sampler
from mcpo_cli.testing.outcomes import outcomes
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
    """A correct sampler with a memory; each one below breaks one thing in it."""

    name: ClassVar[str] = "sound"

    def draw(self, request: Request, state: State) -> Draw:
        return Draw.of_fresh(request, request.prompts)

    def after(self, finished: Finished, state: State) -> State:
        return {"steps": [finished.step]}


def but(kind: type[Sampler], **parts: object) -> Sampler:
    """A sampler of this kind with other parts."""
    return type("Unsound", (kind,), parts)()


def insatiable(_self: Sampler, request: Request, _state: State) -> Draw:
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


def careless(_self: Sampler, request: Request, _state: State) -> Draw:
    start = request.cursor + random.randrange(100)
    return Draw(tuple(range(start, start + request.prompts)), start + request.prompts)


def in_place(_self: Sampler, finished: Finished, state: State) -> State:
    if state:
        state["steps"].append(finished.step)
    return {"steps": list(state.get("steps", []))}


@dataclass(frozen=True)
class Secretive(Sound):
    seen: list[int] = field(default_factory=list)

    def draw(self, request: Request, state: State) -> Draw:
        self.seen.append(request.step)
        return Draw.of_fresh(request, request.prompts)


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
        (but(Sound, name="a b"), "name and options"),
        (but(Sound, draw=lambda _, ask, state: Draw.of_fresh(ask, ask.prompts + 1)), "every step gets a batch"),
        (but(Sound, filters=True, draw=insatiable), "budgets are kept"),
        (Again(), "no prompt is twice in a batch"),
        (but(Sound, draw=careless), "draws are deterministic"),
        (but(Sound, after=in_place), "nothing is changed in place"),
        (but(Sound, after=lambda _, finished, state: {f"step_{finished.step}": [0]}), "only declared state"),
        (Secretive(), "only declared state"),
        # A checkpoint would turn truth values into numbers.
        (but(Sound, after=lambda _, finished, state: {"steps": [True]}), "every step gets a batch"),
        (Hidden(), "a resumed run draws the same"),
    ],
)
def test_each_check_fails_for_a_sampler_that_breaks_its_demand(sampler: Sampler, failing: str) -> None:
    (outcome,) = outcomes({failing: SAMPLER_CHECKS[failing]}, sampler)
    assert not outcome.passed


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


@pytest.mark.parametrize(
    ("sampler", "rollouts", "said"),
    [
        (Allotting(more=3), 4, "17 rollouts in all, not 16"),
        (Allotting(), 3, "rollouts, the fewest 1"),
        (but(Allotting, uneven_groups=False), 4, "`uneven_groups` and no filter"),
        (but(Allotting, filters=True), 4, "`uneven_groups` and no filter"),
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


# --- settings: ids, spellings, contradictions, arms and forks ---------------------------------------------------------


IDS = {
    "": "mcpo-toy-s-s0-1d403645be99",
    "method=dapo": "dapo-toy-s-s0-5aa757b35fe5",
    "method=dapo method.dynamic_sampling=false": "dapo-toy-s-s0-4d9399c8e615",
    "method=mcpo method.dynamic_sampling=true": "mcpo-toy-s-s0-f74335595fbf",
    "method=ngrpo method.dynamic_sampling=true task.pool=256": "ngrpo-toy-s-s0-4ed3f5e3bbb1",
    "method=dapo backend=verl scale=paper model=qwen3-8b": "dapo-qwen3-8b-s0-06ee1cddecaa",
}
"""Ids from before samplers had names."""
SPELLINGS = {
    "sampler=uniform": "",
    "method=dapo sampler=refill": "method=dapo",
    "method=dapo sampler=uniform": "method=dapo method.dynamic_sampling=false",
    "method=dapo sampler=uniform method.dynamic_sampling=off": "method=dapo method.dynamic_sampling=false",
    "sampler=refill": "method=mcpo method.dynamic_sampling=true",
}


@pytest.mark.parametrize("words", IDS)
def test_old_ids_stay(words: str) -> None:
    (spec,) = load(words.split())
    assert spec.run_id == IDS[words]
    assert "sampler" not in spec.to_dict()
    assert spec.sampler == (Refill() if spec.method.dynamic_sampling else Uniform())


@pytest.mark.parametrize("words", SPELLINGS)
def test_two_spellings_are_one_spec(words: str) -> None:
    assert load(words.split()) == load(SPELLINGS[words].split())


def test_the_method_follows_the_sampler() -> None:
    (spec,) = load(["method=dapo", "sampler=review"])
    assert spec.method.dynamic_sampling is False
    (spec,) = load(["method=grpo", "sampler=greso", "task.pool=512"])
    assert spec.method.dynamic_sampling is True
    assert dataclasses.replace(load(["method=grpo"])[0], method=methods.get("dapo")).sampler == Refill()


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("method=dapo sampler=refill method.dynamic_sampling=false", "method.dynamic_sampling=true, or leave it out"),
        ("sampler=mopps", "task.pool=1024, or sampler=uniform"),
        ("sampler=knapsack task.pool=512 sampler.least=17", "sampler.least=16"),
        ("sampler=knapsack task.pool=512 sampler.most=15", "sampler.most=16"),
        ("sampler=knapsack task.pool=512 method=bnpo", "method=grpo, or sampler=uniform"),
    ],
)
def test_contradictions(words: str, fix: str) -> None:
    with refused("contradiction") as caught:
        load(words.split())
    assert caught.value.fix == fix
    repaired = fix.partition(",")[0]
    load([*(word for word in words.split() if word.partition("=")[0] != repaired.partition("=")[0]), repaired])


def test_verl_refuses_groups_of_different_sizes() -> None:
    (spec,) = load(["sampler=knapsack", "method=grpo", "backend=verl", "scale=paper", "model=qwen3-8b"])
    with refused("bad_input", "sampler=knapsack", "backend=verl samples as many of each"):
        checks.check_spec(spec)


def test_a_record_whose_sampler_and_method_disagree_is_refused() -> None:
    data = load(["sampler=review"])[0].to_dict()
    data["method"]["dynamic_sampling"] = True
    with refused("contradiction", "sampler=review", "method.dynamic_sampling=true"):
        from_dict(data)


def test_arms_are_named_by_their_samplers() -> None:
    specs = load(["method=grpo", "sampler=uniform,review"])
    assert arm_names.names([None, None], specs) == ["grpo", "grpo sampler=review"]
    specs = load(["method=grpo", "sampler=review", "sampler.share=0.25,0.5"])
    assert arm_names.names([None, None], specs) == ["grpo share=0.25", "grpo share=0.5"]
    # As before samplers had names.
    specs = load(["method=dapo", "sampler=uniform,refill"])
    assert arm_names.names([None, None], specs) == ["dapo dynamic_sampling=false", "dapo dynamic_sampling=true"]


def test_forks_keep_what_is_not_changed() -> None:
    (parent,) = load(["method=mcpo", "method.delta=0.02", "sampler=review", "sampler.share=0.5", "task.pool=512"])
    (same,) = changed(parent, ["train.lr=2e-3"])
    assert (same.sampler, same.method, same.task) == (parent.sampler, parent.method, parent.task)
    assert same.train == dataclasses.replace(parent.train, lr=2e-3)
    other, again = changed(parent, ["sampler=greso,review"])
    assert (other.sampler, other.method.dynamic_sampling) == (Greso(), True)
    assert again.sampler == Review(), "a sampler that is named has its own defaults"
    (plain,) = changed(parent, ["method=dapo", "sampler=refill"])
    assert plain.sampler == Refill()
    (follows,) = changed(parent, ["method=dapo"])
    assert (follows.sampler, follows.method.dynamic_sampling) == (parent.sampler, False)
