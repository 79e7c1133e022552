"""Samplers: the rules by worked numbers, the settings that choose one, and the conformance kit."""

import dataclasses
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from mcpo_cli import methods, samplers, tasks
from mcpo_cli.backends.drawing import Drawing, TrainingStream
from mcpo_cli.config import arms, plan
from mcpo_cli.config.load import changed, from_dict, load
from mcpo_cli.config.schema import RunSpec, Train
from mcpo_cli.errors import ConfigError, RunFailed
from mcpo_cli.samplers import Draw, Finished, Group, Refill, Request, Sampler, State, Uniform
from mcpo_cli.samplers.greso import Greso, Streak
from mcpo_cli.samplers.mopps import Mopps, Posterior
from mcpo_cli.samplers.pools import Pools
from mcpo_cli.samplers.retention import Replay, Review
from mcpo_cli.testing import SAMPLER_CHECKS, check_sampler


@dataclass(frozen=True)
class Numbers:
    """A stream that has problem 100 + i at position i of each epoch; endless if `distinct` is 0."""

    distinct: int = 0

    def numbers(self, positions: Sequence[int]) -> list[int]:
        return [100 + (position % self.distinct if self.distinct else position) for position in positions]


def ask(
    sampler: Sampler,
    state: State,
    *,
    step: int = 1,
    prompts: int = 4,
    cursor: int = 0,
    distinct: int = 0,
    groups: Sequence[Group] = (),
    number: int = 0,
    seed: int = 0,
) -> Draw:
    budget = 100 * prompts - len(groups)
    request = Request(step, number, prompts, budget, cursor, Numbers(distinct), groups, seed)
    return sampler.draw(request, state)


def done(sampler: Sampler, state: State, step: int, p_of: dict[int, float], rollouts: int = 4) -> State:
    """The state after a step whose problems, at the positions `number - 100`, had these accuracies."""
    groups = [Group(number - 100, number, p, 0 < p < 1, 0) for number, p in p_of.items()]
    return sampler.after(Finished(step, rollouts, groups), state)


def test_uniform_and_refill_take_the_stream_as_it_comes() -> None:
    assert ask(Uniform(), {}, cursor=7) == Draw((7, 8, 9, 10), 11)
    assert ask(Refill(), {}, cursor=7) == Draw((7, 8, 9, 10), 11)
    kept = [Refill().keeps(Group(0, 100, p, 0 < p < 1, 0)) for p in (0.0, 0.25, 1.0)]
    assert kept == [False, True, False]


def test_review_on_its_schedule() -> None:
    """Half a batch of 4 may be reviewed, 3 steps after mastery, and for 2 reviews in a row while regressed."""
    review = Review(share=0.5, interval=3, window=2)
    state = done(review, {}, 1, {100: 1.0, 101: 0.5, 102: 1.0, 103: 1.0})
    assert state == {"number": [100, 102, 103], "position": [0, 2, 3], "due": [4, 4, 4], "missed": [0, 0, 0]}
    assert ask(review, state, step=3, cursor=4) == Draw((4, 5, 6, 7), 8)
    # Three are due and two fit: those that were met first. The stream gives way, and loses nothing.
    assert ask(review, state, step=4, cursor=4) == Draw((0, 2, 4, 5), 6)
    # 100 is still mastered, 102 regressed: due again at once, after 103, which has waited since step 4.
    state = done(review, state, 4, {100: 1.0, 102: 0.75, 104: 0.0, 105: 0.5})
    assert dict(zip(state["number"], zip(state["due"], state["missed"], strict=True), strict=True)) == {
        100: (7, 0),
        103: (4, 0),
        102: (5, 1),
    }
    assert ask(review, state, step=5, cursor=6).positions == (3, 2, 6, 7)
    # Regressed twice in a row: given up; 103 has regressed once.
    state = done(review, state, 5, {103: 0.0, 102: 0.5, 106: 0.5, 107: 0.5})
    assert dict(zip(state["number"], state["missed"], strict=True)) == {100: 0, 103: 1}
    # Repaired within the window.
    state = done(review, state, 6, {103: 1.0})
    assert dict(zip(state["number"], state["due"], strict=True)) == {100: 7, 103: 9}


def test_regressed_prompts_come_before_mastered_ones_that_are_due_as_long() -> None:
    review = Review(share=0.25, interval=1)
    state = done(review, {}, 1, {100: 1.0, 101: 1.0})
    state = done(review, state, 2, {101: 0.5})
    state = done(review, state, 2, {100: 1.0})
    assert ask(review, state, step=3, cursor=8).positions == (1, 8, 9, 10)


def test_fresh_prompts_that_are_reviewed_in_the_same_batch_are_passed_over() -> None:
    """A pool of 6: its second epoch begins with problem 100, which is being reviewed."""
    review = Review(share=0.25, interval=1)
    state = done(review, {}, 1, {100: 1.0})
    assert ask(review, state, step=2, cursor=6, distinct=6) == Draw((0, 7, 8, 9), 10)


def test_replay_draws_from_all_that_was_solved() -> None:
    replay = Replay(share=0.5)
    state = done(replay, {}, 1, {100: 1.0, 101: 0.5, 102: 1.0, 103: 1.0})
    state = done(replay, state, 2, {100: 0.0, 104: 0.75})
    assert state == {"number": [100, 102, 103], "position": [0, 2, 3]}
    seen = Counter(
        position for seed in range(300) for position in ask(replay, state, cursor=5, seed=seed).positions[:2]
    )
    assert set(seen) == {0, 2, 3}
    assert all(150 < count < 250 for count in seen.values()), "each is drawn in two of three batches"
    assert ask(replay, state, cursor=5).positions[2:] == (5, 6)
    assert ask(replay, {}, cursor=5) == Draw((5, 6, 7, 8), 9)
    assert done(Replay(solved=0.5), {}, 1, {100: 0.5, 101: 0.25})["number"] == [100]


def test_pools_draw_by_their_weights() -> None:
    """100 hard, 101 normal, 102 easy, 103 never rolled: weights .1, 1, .2 and 1, of 2.3."""
    pools = Pools(hard_weight=0.1)
    assert [pools.weight(p) for p in (0.0, 0.25, 0.26, 0.75, 0.76, 1.0, None)] == [0.1, 0.1, 1.0, 1.0, 0.2, 0.2, 1.0]
    state = done(pools, {}, 1, {100: 0.75, 101: 0.5, 102: 1.0})
    state = done(pools, state, 2, {100: 0.25})
    assert state == {"number": [100, 101, 102], "p": [0.25, 0.5, 1.0]}
    draws = 4000
    seen = Counter(
        position for seed in range(draws) for position in ask(pools, state, prompts=1, distinct=4, seed=seed).positions
    )
    shares = [seen[position] / draws for position in range(4)]
    assert shares == pytest.approx([0.1 / 2.3, 1 / 2.3, 0.2 / 2.3, 1 / 2.3], abs=0.025)
    assert sorted(ask(pools, state, prompts=4, distinct=4).positions) == [0, 1, 2, 3]


def test_greso_skips_by_streaks() -> None:
    """All correct twice in a row, and all wrong once: rolled with .25 and .5; mixed: always."""
    greso = Greso(first=1)
    state = done(greso, {}, 1, {100: 1.0, 101: 0.0, 102: 0.5, 103: 1.0})
    state = done(greso, {**state, "explore": [0.5, 0.5]}, 2, {100: 1.0, 103: 0.5})
    assert state["number"] == [100, 101, 102, 103]
    assert (state["right"], state["wrong"]) == ([2, 0, 0, 0], [0, 1, 0, 0])
    state = {**state, "explore": [0.5, 0.5]}
    firsts = Counter(ask(greso, state, prompts=1, distinct=4, seed=seed).positions[0] for seed in range(4000))
    # The first position that is rolled: 0 with .25; else 1 with .5; else 2.
    assert [firsts[position] / 4000 for position in range(3)] == pytest.approx([0.25, 0.375, 0.375], abs=0.03)
    assert Streak(2, 0).then(1.0) == Streak(3, 0)
    assert Streak(2, 0).then(0.0) == Streak(0, 1)


def test_greso_adapts_its_exploration_once_problems_return() -> None:
    """Target .24: at least .08 may be all correct, and .16 all wrong."""
    greso = Greso(target=0.24)
    first = done(greso, {}, 1, {100: 1.0, 101: 1.0})
    assert first["explore"] == [0.5, 0.5]
    # One in ten all correct, one in ten all wrong.
    step = {100: 1.0, 101: 0.0, **dict.fromkeys(range(102, 110), 0.5)}
    assert done(greso, first, 2, step)["explore"] == pytest.approx([0.49, 0.51])
    low = {**first, "explore": [0.05, 0.95]}
    assert done(greso, low, 2, step)["explore"] == [0.05, 0.95]


@pytest.mark.parametrize(
    ("mixed", "lacking", "size"),
    [
        (6, 2, 5),  # 2 / (6 / 12) x 1.25
        (1, 7, 12),  # 105, cut to one and a half batches
        (0, 8, 12),  # nothing is known
        (7, 1, 2),  # 2.14, cut to a whole number
        (11, 1, 2),  # 1.36, raised to a quarter of a batch
    ],
)
def test_greso_sizes_its_rounds_by_what_is_lacking(mixed: int, lacking: int, size: int) -> None:
    p_P = [0.5] * mixed + [0.0] * (12 - mixed)
    groups = [Group(i, 100 + i, p, 0 < p < 1, 0, kept=i < 8 - lacking) for i, p in enumerate(p_P)]
    assert len(ask(Greso(), {}, prompts=8, cursor=12, distinct=99, groups=groups, number=1).positions) == size
    assert len(ask(Greso(), {}, prompts=8, distinct=99).positions) == 12


def test_mopps_updates_its_posteriors() -> None:
    """Prior (1, 1), 3 of 4 correct: (4, 2); then, half forgotten, 1 of 4: (2 + .5 + 1, 1 + .5 + 3)."""
    mopps = Mopps(discount=0.5)
    state = done(mopps, {}, 1, {100: 0.75})
    assert state == {"number": [100], "alpha": [4.0], "beta": [2.0]}
    assert done(mopps, state, 2, {100: 0.25}) == {"number": [100], "alpha": [3.5], "beta": [4.5]}
    assert Posterior(4.0, 2.0).then(1, 3, discount=1.0) == Posterior(5.0, 5.0)


def test_mopps_takes_the_prompts_whose_draws_are_nearest_to_the_target() -> None:
    """Against the same draws of Python's own Beta, made here."""
    mopps = Mopps(candidates=2, target=0.7)
    state = {"number": [100, 101, 102], "alpha": [8.0, 1.0, 30.0], "beta": [2.0, 9.0, 30.0]}
    rng = random.Random(5)
    known = {100: (8.0, 2.0), 101: (1.0, 9.0), 102: (30.0, 30.0)}
    drawn = [rng.betavariate(*known.get(number, (1.0, 1.0))) for number in range(100, 108)]
    wanted = sorted(range(8), key=lambda place: abs(drawn[place] - 0.7))[:4]
    assert ask(mopps, state, distinct=50, seed=5) == Draw(tuple(wanted), 8)


def test_mopps_has_no_candidate_twice() -> None:
    """A pool of 6 with the cursor at 4: the candidates are problems 4, 5 of the first epoch and 0 to 3 of the next."""
    draw = ask(Mopps(candidates=8), {}, prompts=6, cursor=4, distinct=6)
    assert sorted(draw.positions) == [4, 5, 6, 7, 8, 9]
    assert draw.cursor == 10


def test_a_stream_by_positions_is_the_stream() -> None:
    for pool in (0, 10):
        task = tasks.get("arithmetic", pool=pool)
        stream, plain = (
            TrainingStream(task.problems(Train(prompts=4), lambda messages: True), 3),
            task.training(3, 0, 30),
        )
        places = [7, 8, 25, 0, 26]
        assert stream.problems(places) == [plain[place] for place in places]
        assert stream.numbers(places) == [plain[place].number for place in places]
        assert stream.distinct == pool


# --- settings


IDS = {
    "": "mcpo-toy-s-s0-1d403645be99",
    "method=dapo": "dapo-toy-s-s0-5aa757b35fe5",
    "method=dapo method.dynamic_sampling=false": "dapo-toy-s-s0-4d9399c8e615",
    "method=mcpo method.dynamic_sampling=true": "mcpo-toy-s-s0-f74335595fbf",
    "method=ngrpo method.dynamic_sampling=true task.pool=256": "ngrpo-toy-s-s0-4ed3f5e3bbb1",
    "method=dapo backend=verl scale=paper model=qwen3-8b": "dapo-qwen3-8b-s0-06ee1cddecaa",
}
"""Ids of the time before samplers had names."""
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


def test_another_sampler_is_another_run() -> None:
    plain, review, other = load(["sampler=uniform"]) + load(["sampler=review", "sampler.share=0.25,0.5"])
    assert len({plain.run_id, review.run_id, other.run_id}) == 3
    assert review.identity()["sampler"] == {"name": "review", "share": 0.25, "interval": 4, "window": 4}
    assert review.base_id == plain.base_id, "it changes nothing about where RL starts"
    for spec in (plain, review, other):
        assert from_dict(spec.to_dict()) == spec


def test_the_method_follows_the_sampler() -> None:
    (spec,) = load(["method=dapo", "sampler=review"])
    assert spec.method.dynamic_sampling is False
    (spec,) = load(["method=grpo", "sampler=greso", "task.pool=512"])
    assert spec.method.dynamic_sampling is True
    assert dataclasses.replace(load(["method=grpo"])[0], method=methods.get("dapo")).sampler == Refill()


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("sampler=uniform method.dynamic_sampling=true", "method.dynamic_sampling=false, or leave it out"),
        ("sampler=review method.dynamic_sampling=on", "method.dynamic_sampling=false, or leave it out"),
        ("method=dapo sampler=refill method.dynamic_sampling=false", "method.dynamic_sampling=true, or leave it out"),
        ("sampler=greso", "task.pool=1024, or sampler=uniform"),
        ("sampler=mopps", "task.pool=1024, or sampler=uniform"),
        ("sampler=review train.reward=random train.overlong_cache=0", "sampler=uniform"),
        ("method=copo sampler=greso task.pool=512 train.overlong_cache=0", "sampler=uniform"),
        ("sampler=pools task.pool=512 sampler.hard=0.9", "sampler.hard=0.75"),
        ("sampler=review sampler.easy=0.5 task.pool=512", "sampler=pools"),
    ],
)
def test_contradictions(words: str, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(words.split())
    assert caught.value.code == "contradiction"
    assert caught.value.fix == fix
    repaired = fix.partition(",")[0]
    load([*(word for word in words.split() if word.partition("=")[0] != repaired.partition("=")[0]), repaired])


def test_a_record_whose_sampler_and_method_disagree_is_refused() -> None:
    data = load(["sampler=review"])[0].to_dict()
    data["method"]["dynamic_sampling"] = True
    with pytest.raises(ConfigError, match="contradicts"):
        from_dict(data)


def test_arms_are_named_by_their_samplers() -> None:
    specs = load(["method=grpo", "sampler=uniform,review"])
    assert arms.names([None, None], specs) == ["grpo", "grpo sampler=review"]
    specs = load(["method=grpo", "sampler=review", "sampler.share=0.25,0.5"])
    assert arms.names([None, None], specs) == ["grpo share=0.25", "grpo share=0.5"]
    # As before samplers had names.
    specs = load(["method=dapo", "sampler=uniform,refill"])
    assert arms.names([None, None], specs) == ["dapo dynamic_sampling=false", "dapo dynamic_sampling=true"]


def test_a_suite_may_have_samplers_as_arms(tmp_path: Path) -> None:
    file = tmp_path / "kept.yaml"
    file.write_text("arms: {plain: [method=grpo], review: [method=grpo, sampler=review, sampler.interval=2]}\n")
    plain, review = plan.from_suite(str(file), [], "mcpo train").cells
    assert (plain.arm, plain.spec.sampler) == ("plain", Uniform())
    assert (review.arm, review.spec.sampler) == ("review", Review(interval=2))


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


# --- the contract


VARIANTS = [
    *(kind() for kind in samplers.registry().values()),
    Review(share=0.9, interval=1, window=1),
    Replay(share=0.9, solved=0.25),
    Greso(explore=0.05, first=1, target=0.9),
    Mopps(candidates=1, discount=1.0),
]


@pytest.mark.parametrize("sampler", VARIANTS, ids=repr)
def test_samplers_pass(sampler: Sampler) -> None:
    found = check_sampler(sampler)
    assert [outcome.name for outcome in found] == list(SAMPLER_CHECKS)
    assert {outcome.name: outcome.detail for outcome in found if not outcome.passed} == {}


@dataclass(frozen=True)
class Sound(Sampler):
    """A sound sampler with a memory; each class below breaks one thing in it."""

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
    """Brings problem 0 of the second epoch back while the stream has it, too."""

    def draw(self, request: Request, state: State) -> Draw:
        if request.cursor % 48 or not request.cursor:
            return Draw.of_fresh(request, request.prompts)
        (first,) = request.stream.numbers([request.cursor])
        old = next(place for place in range(48) if request.stream.numbers([place]) == [first])
        return Draw((old, *request.fresh(request.prompts - 1)), request.cursor + request.prompts - 1)


class Careless(Sound):
    def draw(self, request: Request, state: State) -> Draw:
        start = request.cursor + random.randrange(100)
        return Draw(tuple(range(start, start + request.prompts)), start + request.prompts)


class InPlace(Sound):
    def after(self, finished: Finished, state: State) -> State:
        if state:
            state["steps"].append(finished.step)  # type: ignore[attr-defined]
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
    """A checkpoint would turn its truth values into numbers."""

    def after(self, finished: Finished, state: State) -> State:
        return {"steps": [True]}


class Hidden(Sound):
    """Remembers outside of its state how many draws a run has made."""

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


def test_a_pool_that_is_used_up_ends_a_step() -> None:
    of = drawing(Greso(), max_refills=20)
    while len(of.groups) < 16:
        of.add([1.0] * len(of.draw()))
    with pytest.raises(RunFailed, match="found only 0 of 4 prompts for the batch among the 16") as caught:
        of.draw()
    assert "task.pool=32" in str(caught.value.fix)


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
