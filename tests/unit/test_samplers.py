"""Samplers: the rules on numbers by hand, and the stream that they draw from."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from mcpo_cli import tasks
from mcpo_cli.backends.drawing import TrainingStream
from mcpo_cli.config.schema import Train
from mcpo_cli.prompt_samplers import Draw, Finished, Group, Refill, Request, Sampler, State, Uniform
from mcpo_cli.prompt_samplers.greso import Greso, Streak
from mcpo_cli.prompt_samplers.mopps import Mopps, Posterior
from mcpo_cli.prompt_samplers.pairing import Pairing
from mcpo_cli.prompt_samplers.pools import Pools
from mcpo_cli.prompt_samplers.retention import Replay, Review


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
    request = Request(step, number, prompts, budget, cursor, Numbers(distinct), groups, seed, rollouts=4)
    return sampler.draw(request, state)


def done(sampler: Sampler, state: State, step: int, p_of: dict[int, float], rollouts: int = 4) -> State:
    """The state after a step whose problems, at the positions `number - 100`, had these accuracies."""
    groups = [Group(number - 100, number, p, 0 < p < 1, 0, rollouts=rollouts) for number, p in p_of.items()]
    return sampler.after(Finished(step, groups), state)


def test_uniform_and_refill_take_the_stream_as_it_comes() -> None:
    assert ask(Uniform(), {}, cursor=7) == Draw((7, 8, 9, 10), 11)
    assert ask(Refill(), {}, cursor=7) == Draw((7, 8, 9, 10), 11)
    kept = [Refill().keeps(Group(0, 100, p, 0 < p < 1, 0, rollouts=4)) for p in (0.0, 0.25, 1.0)]
    assert kept == [False, True, False]


def test_review_on_its_schedule() -> None:
    """Half a batch of 4 may be reviewed, 3 steps after mastery, and for 2 reviews in a row while regressed."""
    review = Review(share=0.5, interval=3, window=2)
    state = done(review, {}, 1, {100: 1.0, 101: 0.5, 102: 1.0, 103: 1.0})
    assert state == {"number": [100, 102, 103], "position": [0, 2, 3], "due": [4, 4, 4], "missed": [0, 0, 0]}
    assert ask(review, state, step=3, cursor=4) == Draw((4, 5, 6, 7), 8)
    # Three are due and two fit: those that came first. They replace problems of the stream, which come later.
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


def test_pairing_takes_as_many_seldom_right_as_seldom_wrong() -> None:
    """With 8 rollouts, at most 2 are rare: 101 and 102 are seldom correct, 104 and 105 seldom incorrect."""
    pairing = Pairing(share=1.0)
    accuracies = {100: 0.0, 101: 0.125, 102: 0.25, 103: 0.375, 104: 0.75, 105: 0.875, 106: 1.0, 107: 0.5}
    state = done(pairing, {}, 1, accuracies, rollouts=8)
    assert state == {"number": [101, 102, 104, 105], "position": [1, 2, 4, 5], "brittle": [0, 0, 1, 1]}
    assert sorted(ask(pairing, state, cursor=8).positions) == [1, 2, 4, 5]
    # A share of half of 4 is one pair, each kind at random; the stream gives the rest.
    drawn = [ask(Pairing(), state, cursor=8, seed=seed) for seed in range(400)]
    assert {(draw.positions[2:], draw.cursor) for draw in drawn} == {((8, 9), 10)}
    pairs = Counter(draw.positions[:2] for draw in drawn)
    assert set(pairs) == {(1, 4), (1, 5), (2, 4), (2, 5)}
    assert all(60 < count < 140 for count in pairs.values())
    # 104 is now mastered and 105 seldom correct: there is no prompt to pair it with.
    state = done(pairing, state, 2, {104: 1.0, 105: 0.125}, rollouts=8)
    assert ask(pairing, state, cursor=10) == Draw((10, 11, 12, 13), 14)


def test_pools_draw_by_their_weights() -> None:
    """100 hard, 101 normal, 102 easy, 103 never sampled: weights .1, 1, .2 and 1, of 2.3."""
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
    """All correct twice in a row, and all incorrect once: sampled with probability .25 and .5; mixed: always."""
    greso = Greso(first=1)
    state = done(greso, {}, 1, {100: 1.0, 101: 0.0, 102: 0.5, 103: 1.0})
    state = done(greso, {**state, "explore": [0.5, 0.5]}, 2, {100: 1.0, 103: 0.5})
    assert state["number"] == [100, 101, 102, 103]
    assert (state["right"], state["wrong"]) == ([2, 0, 0, 0], [0, 1, 0, 0])
    state = {**state, "explore": [0.5, 0.5]}
    firsts = Counter(ask(greso, state, prompts=1, distinct=4, seed=seed).positions[0] for seed in range(4000))
    # The first position that is sampled: 0 with .25; else 1 with .5; else 2.
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
        (0, 8, 12),  # no accuracy is known
        (7, 1, 2),  # 2.14, cut to a whole number
        (11, 1, 2),  # 1.36, raised to a quarter of a batch
    ],
)
def test_greso_sizes_its_rounds_by_what_is_lacking(mixed: int, lacking: int, size: int) -> None:
    p_P = [0.5] * mixed + [0.0] * (12 - mixed)
    groups = [Group(i, 100 + i, p, 0 < p < 1, 0, kept=i < 8 - lacking, rollouts=4) for i, p in enumerate(p_P)]
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
            TrainingStream(task.problems(Train(prompts=4), lambda messages: 1), 3),
            task.training(3, 0, 30),
        )
        places = [7, 8, 25, 0, 26]
        assert stream.problems(places) == [plain[place] for place in places]
        assert stream.numbers(places) == [plain[place].number for place in places]
        assert stream.distinct == pool
