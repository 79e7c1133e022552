"""Metrics of a global step against values computed by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpo_cli.backends import measure
from mcpo_cli.backends.graded import Graded
from mcpo_cli.data.base import Problem
from mcpo_cli.methods import get, query_weight


def groups(*right: int, rollouts: int = 4) -> torch.Tensor:
    """One group per count, in which that number, the first rollouts, are correct."""
    return torch.tensor([[place < count for place in range(rollouts)] for count in right])


def weights(correct_PG: torch.Tensor, advantage_PG: torch.Tensor) -> dict[str, float]:
    """Weights of groups without empty places."""
    return measure.weights(correct_PG, advantage_PG, torch.tensor(correct_PG.shape[-1]).expand(len(correct_PG)))


def test_weights_by_hand() -> None:
    """1, 2, 3 and 4 of 4 correct: W = sqrt(3)/4, 1/2, sqrt(3)/4 and none for the mastered prompt."""
    correct_PG = groups(1, 2, 3, 4)
    found = weights(correct_PG, get("grpo").advantages(correct_PG, correct_PG))
    edge = math.sqrt(3) / 4
    # sum |A| of p = 1/4: sqrt(3) + 3 / sqrt(3) = 2 sqrt(3), as of p = 3/4; of p = 1/2: 4. sum A^2 is 4 in each.
    assert found == pytest.approx(
        {
            "weight/p_0.00_0.25": edge,
            "weight/p_0.25_0.50": 0.5,
            "weight/p_0.50_0.75": edge,
            "weight/share_minority": (edge + 0.5) / (2 * edge + 0.5),
            "weight/effective_sample": (4 * math.sqrt(3) + 4) ** 2 / 12,
        },
        abs=1e-12,
    )


def test_a_batch_without_an_advantage_has_no_weights() -> None:
    correct_PG = groups(0, 4)
    assert weights(correct_PG, torch.zeros(2, 4, dtype=torch.float64)) == {}


WEIGHTS = {name: [float(query_weight(name, k / 8)) for k in range(9)] for name in ("grpo", "mcpo")}


@settings(max_examples=30)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=12).filter(lambda right: any(0 < k < 8 for k in right)))
def test_the_share_on_minority_prompts_is_that_of_the_analytic_weights(right: list[int]) -> None:
    correct_PG = groups(*right, rollouts=8)
    for name, weight in WEIGHTS.items():
        found = weights(correct_PG, get(name).advantages(correct_PG, correct_PG))
        share = sum(weight[k] for k in right if k <= 4) / sum(weight[k] for k in right)
        assert found["weight/share_minority"] == pytest.approx(share, abs=1e-12)
        assert 0 < found["weight/effective_sample"] <= 8 * len(right) + 1e-9


def test_measured_weights_meet_the_analytic_ones_where_advantages_are_cut() -> None:
    """15 of 16 right, |A| cut at 2: A+ = 8/15, A- = -2, W = 15/256 (8/15 + 2), not the 1/2 that right answers show."""
    correct_PG = groups(15, rollouts=16)
    method = get("reweighted", clip_advantage=2.0)
    found = weights(correct_PG, method.advantages(correct_PG, correct_PG))
    assert found["weight/p_0.75_1.00"] == pytest.approx(15 / 256 * (8 / 15 + 2), abs=1e-12)
    assert found["weight/p_0.75_1.00"] == pytest.approx(query_weight(method, 15 / 16), abs=1e-12)


def test_weights_do_not_see_a_baseline() -> None:
    correct_PG = groups(1, 3)
    advantage_PG = get("grpo").advantages(correct_PG, correct_PG)
    found, shifted = (weights(correct_PG, advantage_PG + shift) for shift in (0.0, 0.7))
    del found["weight/effective_sample"], shifted["weight/effective_sample"]
    assert shifted == pytest.approx(found)


def test_answers_are_equal_where_their_texts_are() -> None:
    answers = [["7", None, "x", "7"], ["x", "", "x", None]]
    assert measure.answer_classes(answers) == [[0, -1, 1, 0], [0, -1, 0, -1]]


def test_group_rows_by_hand() -> None:
    """Entropies are means over tokens, not over rollouts; a mean without rollouts is left out."""
    graded = Graded(
        problems=[Problem("a", "1"), Problem("b", "2")],
        correct_PG=torch.tensor([[True, True, False], [False, False, False]]),
        reward_PG=torch.zeros(2, 3),
        length_PG=torch.tensor([[2, 6, 4], [4, 4, 4]]),
        ended_PG=torch.tensor([[True, False, True], [True, True, True]]),
        same_P=torch.tensor([0.0, 1 / 3]),
        entropy_PG=torch.tensor([[0.4, 0.8, 1.0], [0.5, 0.5, 0.5]]),
    )
    first, second = measure.group_rows(7, graded, {1})
    # (2 * 0.4 + 6 * 0.8) / 8 = 0.7 of the right ones; with 4 * 1.0 of the wrong one (5.6 + 4) / 12 = 0.8.
    assert (first["entropy"], first["entropy_right"], first["entropy_wrong"]) == pytest.approx((0.8, 0.7, 1.0))
    assert (first["p"], first["mean_length"], first["truncated"], first["duplicates"]) == pytest.approx(
        (2 / 3, 4.0, 1 / 3, 0.0)
    )
    assert (first["kept"], second["kept"], second["step"]) == (False, True, 7)
    assert "entropy_right" not in second
    assert second["entropy_wrong"] == second["entropy"] == 0.5


def test_group_rows_without_entropies() -> None:
    graded = Graded(
        [Problem("a", "1")], groups(2), groups(2), groups(4) + 1, groups(4), same_P=torch.zeros(1, dtype=torch.float64)
    )
    (row,) = measure.group_rows(1, graded, set())
    assert not {"entropy", "entropy_right", "entropy_wrong"} & row.keys()
