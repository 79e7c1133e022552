"""Rewards besides the verdict: the penalty on overlong responses, and fair coins, the same on both backends."""

import pytest
import torch

from mcpo_cli.backends.graded import overlong_penalty, random_rewards
from mcpo_cli.backends.verl.batch import Group, Prompt
from mcpo_cli.data.base import Problem
from mcpo_cli.grading import Grade

P, G = 200, 16
RIGHT_PG = torch.ones(P, G, dtype=torch.bool)


@pytest.mark.parametrize(("length", "expected"), [(0, 0.0), (16, 0.0), (17, -0.25), (18, -0.5), (20, -1.0), (25, -1.0)])
def test_overlong_penalty_falls_linearly_in_the_cache(length: int, expected: float) -> None:
    assert float(overlong_penalty(torch.tensor(length), 20, 4, 1.0)) == expected
    assert float(overlong_penalty(torch.tensor(length), 20, 4, 0.5)) == expected / 2
    assert float(overlong_penalty(torch.tensor(length), 20, 0, 1.0)) == 0


def test_coins_are_fair_and_independent() -> None:
    coins_PG = random_rewards(RIGHT_PG, 0, 1, 0)
    assert coins_PG.dtype == torch.bool
    assert coins_PG.shape == (P, G)
    # Five standard errors of a mean, and of a correlation.
    assert abs(coins_PG.double().mean() - 0.5) < 5 * 0.5 / (P * G) ** 0.5
    centred_PG = coins_PG.double() - 0.5
    for other_PG in (centred_PG.roll(1, 0), centred_PG.roll(1, 1), random_rewards(RIGHT_PG, 0, 2, 0).double() - 0.5):
        assert abs((centred_PG * other_PG).mean() * 4) < 5 / (P * G) ** 0.5


def test_coins_depend_on_seed_step_and_place_alone() -> None:
    coins_PG = random_rewards(RIGHT_PG, 3, 7, 0)
    assert torch.equal(random_rewards(~RIGHT_PG, 3, 7, 0), coins_PG)
    assert torch.equal(random_rewards(RIGHT_PG[:50], 3, 7, 150), coins_PG[150:])
    assert not torch.equal(random_rewards(RIGHT_PG, 4, 7, 0), coins_PG)


def test_verl_groups_get_the_coins_of_the_local_engine() -> None:
    verdicts = [Grade("correct"), Grade("wrong"), Grade("wrong")]
    group = Group(Prompt(5, Problem("1 + 1 =", "2"), "k2-3"), [], [1.0, 0.0, 0.0], verdicts, [], [])
    assert group.seen == group.correct == [True, False, False]
    found = group.rewarded_at_random(3, 7)
    expected = random_rewards(torch.ones(6, 3, dtype=torch.bool), 3, 7, 0)[5].tolist()
    assert found.seen == expected != [True, False, False]
    assert found.reward == [float(coin) for coin in expected]
    assert found.correct == [True, False, False]
