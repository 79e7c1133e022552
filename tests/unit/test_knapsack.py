"""Knapsack allocation of rollouts: numbers by hand, and optimality against dynamic programming."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpo_cli.prompt_samplers import Draw, Finished, Group
from mcpo_cli.prompt_samplers.knapsack import Evidence, Knapsack, gain, give
from tests.unit.test_samplers import ask


def value(p: float, rollouts: int) -> float:
    """The paper's value: P(both outcomes) times InfoGain."""
    return (1 - p**rollouts - (1 - p) ** rollouts) * p * (1 - p) ** 2


def test_a_gain_is_the_difference_of_two_values() -> None:
    """p = 1/2: 1 - 2^(1 - N) times 1/8, so 1/16 of two rollouts and 3/32 of three. p = 1/5, N = 2: .32 x .128."""
    assert value(0.5, 2) == 1 / 16
    assert gain(0.5, 2) == 1 / 32
    assert value(0.2, 2) == pytest.approx(0.32 * 0.128)
    for p in (0.01, 0.2, 0.5, 0.93):
        for rollouts in (2, 3, 17):
            assert gain(p, rollouts) == pytest.approx(value(p, rollouts + 1) - value(p, rollouts), rel=1e-6)
            assert gain(p, rollouts) > gain(p, rollouts + 1) > 0


def best(rates: list[float], least: int, most: int, budget: int) -> float:
    """The largest sum of values of all allocations of `budget`, by dynamic programming over the prompts."""
    found = {0: 0.0}
    for p in rates:
        longer = dict[int, float]()
        for spent, total in found.items():
            for rollouts in range(least, most + 1):
                now = spent + rollouts
                longer[now] = max(longer.get(now, -math.inf), total + value(p, rollouts))
        found = longer
    return found[budget]


@given(
    st.lists(st.floats(0.01, 0.99), min_size=1, max_size=5), st.integers(2, 4), st.integers(0, 6), st.integers(0, 99)
)
def test_no_allocation_has_a_larger_value(rates: list[float], least: int, room: int, extra: int) -> None:
    most, counts = least + room, [least] * len(rates)
    budget = min(extra, room * len(rates))
    left = give(counts, range(len(rates)), budget, most, lambda index: -gain(rates[index], counts[index]))
    assert left == 0
    assert sum(counts) == least * len(rates) + budget
    assert max(counts) <= most
    total = sum(map(value, rates, counts))
    assert total == pytest.approx(best(rates, least, most, sum(counts)), rel=1e-9)


@pytest.mark.parametrize(
    ("rates", "counts"),
    [
        # The first epoch.
        ([None, None, None, None], [8, 8, 8, 8]),
        # 0.5 needs 3 rollouts for both outcomes, 0.9 needs 21, of 24 that are left: nothing for the unsolved one. Gains
        # of .5 halve: 1/32 of the third. Those of .9 fall slowly: 0.9 x .1^2 x (0.9^N x .1 + 0.1^N x .9).
        ([0.0, 0.5, 1.0, 0.9], [2, 10, 2, 18]),
        # Both need 3 of the 18 that are left; 12 go to the unsolved ones.
        ([0.0, 0.5, 0.5, 0.0], [11, 5, 5, 11]),
        # The same without an unsolved one: all rollouts go to prompts that can be learned from.
        ([1.0, 0.5, 0.5, 1.0], [2, 14, 14, 2]),
        # Solved ones have nothing to learn from.
        ([0.0, 0.0, 1.0], [11, 11, 2]),
        ([1.0, 1.0, 1.0], [8, 8, 8]),
        # A new one has the mean.
        ([None, 0.5, 1.0, 1.0], [8, 20, 2, 2]),
    ],
)
def test_allocations_by_hand(rates: list[float | None], counts: list[int]) -> None:
    assert Knapsack().allotted(rates, 8) == counts


def test_what_the_largest_group_shuts_out_goes_to_the_smallest() -> None:
    assert Knapsack(most=10).allotted([0.5, 1.0, 1.0, 0.0], 8) == [10, 6, 6, 10]
    assert Knapsack(most=9).allotted([0.5, 0.5, 1.0, None], 8) == [9, 9, 6, 8]
    assert Knapsack(least=8, most=8).allotted([0.5, 0.1, 1.0, None], 8) == [8, 8, 8, 8]


@given(st.lists(st.none() | st.integers(0, 6), min_size=1, max_size=12), st.integers(2, 9), st.integers(0, 20))
def test_the_budget_is_met_within_the_bounds(sixths: list[int | None], rollouts: int, room: int) -> None:
    knapsack = Knapsack(most=rollouts + room)
    rates = [None if k is None else k / 6 for k in sixths]
    counts = knapsack.allotted(rates, rollouts)
    assert sum(counts) == rollouts * len(rates)
    assert all(2 <= count <= knapsack.most for count in counts)
    # Equal prompts of a batch differ by at most one rollout, and the first has more.
    for p in set(rates):
        own = [count for rate, count in zip(rates, counts, strict=True) if rate == p]
        assert own == sorted(own, reverse=True)
        assert own[0] - own[-1] <= 1


def test_evidence_is_of_the_latest_rollouts() -> None:
    """16 rollouts count: 4 of 8, then 3 of 4, then 0 of 6: of the first 8 six are left, 3 of them correct."""
    first = Evidence().then(4, 8, most=16)
    assert first == Evidence(4, 8)
    second = first.then(3, 4, most=16)
    assert second == Evidence(7, 12)
    third = second.then(0, 6, most=16)
    assert third == Evidence(7 * 10 / 12, 16)
    assert third.then(5, 20, most=16) == Evidence(5, 20)
    # A prompt that was always solved, or never, stays so.
    assert Evidence(16, 16).then(2, 2, most=16).p == 1
    assert Evidence(0, 16).then(0, 3, most=16).p == 0


def test_a_batch_is_the_stream_with_rollouts_by_what_is_known() -> None:
    knapsack = Knapsack()
    assert ask(knapsack, {}, distinct=4) == Draw((0, 1, 2, 3), 4, (4, 4, 4, 4))
    p_of = {100: 0.0, 101: 0.5, 102: 1.0, 103: 0.5}
    groups = [Group(number - 100, number, p, 0 < p < 1, 0, rollouts=4) for number, p in p_of.items()]
    state = knapsack.after(Finished(1, groups), {})
    assert state == {"number": [100, 101, 102, 103], "right": [0, 2, 4, 2], "rollouts": [4, 4, 4, 4]}
    # 8 are left, and both need 3.
    assert ask(knapsack, state, step=2, cursor=4, distinct=4).rollouts == (4, 5, 2, 5)
    again = knapsack.after(Finished(2, [Group(5, 101, 0.2, True, 0, rollouts=5)]), state)
    assert dict(zip(again["number"], zip(again["right"], again["rollouts"], strict=True), strict=True))[101] == (3, 9)
