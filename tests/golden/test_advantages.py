"""Eq. 1 and 12-14: hand-computed groups, the identity of proof A.1, properties, and a second implementation."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mcpo_cli.methods import get, query_weight

G = 16
METHODS = ["dapo", "grpo", "mcpo", "mcpo_extended", "reweighted"]
"""Methods with the advantages of Eq. 1 and 12-14; the zoo has separate tests."""


def group(right: int) -> torch.Tensor:
    """One group of G rollouts of which the first `right` are correct."""
    return torch.tensor([[1.0] * right + [0.0] * (G - right)], dtype=torch.float64)


# By hand: at p = 15/16, std = sqrt(15)/16, so A+ = (1/16) / (sqrt(15)/16) = 1/sqrt(15) and A- = -sqrt(15).
# scale = 2 sqrt(15)/16 = sqrt(15)/8, so MCPO has A+ = 8/15 and A- = -8.
@pytest.mark.parametrize(
    ("name", "right", "if_right", "if_wrong"),
    [
        ("grpo", 8, 1.0, -1.0),
        ("grpo", 15, 1 / math.sqrt(15), -math.sqrt(15)),
        ("grpo", 1, math.sqrt(15), -1 / math.sqrt(15)),
        ("grpo", 4, math.sqrt(3), -1 / math.sqrt(3)),
        ("mcpo", 8, 1.0, -1.0),
        ("mcpo", 4, math.sqrt(3), -1 / math.sqrt(3)),
        ("mcpo", 15, 8 / 15, -8.0),
        ("mcpo", 12, 2 / 3, -2.0),
        ("mcpo", 9, 8 / 9, -8 / 7),
    ],
)
def test_hand_computed_groups(name: str, right: int, if_right: float, if_wrong: float) -> None:
    advantage_PG = get(name).advantages(group(right), group(right))
    assert advantage_PG.dtype == torch.float64
    assert advantage_PG[0, :right].numpy() == pytest.approx(if_right, abs=1e-12)
    assert advantage_PG[0, right:].numpy() == pytest.approx(if_wrong, abs=1e-12)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("right", [0, G])
def test_degenerate_groups_get_nothing_even_where_shaping_tells_them_apart(name: str, right: int) -> None:
    reward_PG = group(right)
    reward_PG[0, 3] -= 0.5
    assert torch.equal(get(name).advantages(reward_PG, group(right)), torch.zeros(1, G, dtype=torch.float64))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("right", [0, G])
def test_shaped_signal_of_degenerate_groups_can_be_kept(name: str, right: int) -> None:
    reward_PG = group(right)
    reward_PG[0, 0] -= 0.5
    # One of 16 lower by h: mean -h/16, std h sqrt(15)/16, so A = -sqrt(15) for it and 1/sqrt(15) else.
    advantage_PG = get(name, degenerate="shaped").advantages(reward_PG, group(right))
    assert float(advantage_PG[0, 0]) == pytest.approx(-math.sqrt(15), abs=1e-12)
    assert advantage_PG[0, 1:].numpy() == pytest.approx(1 / math.sqrt(15), abs=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_weight_identity_of_proof_a1(name: str) -> None:
    """p A+ = -(1 - p) A- = sqrt(p(1 - p)) / scale(p) for p = 1/16 .. 15/16."""
    method = get(name)
    for right in range(1, G):
        p = right / G
        advantage_G = method.advantages(group(right), group(right))[0]
        weight = 0.5 if getattr(method, "reweight", False) and p > 0.5 else math.sqrt(p * (1 - p))
        assert abs(p * float(advantage_G[0]) - weight) < 1e-12
        assert abs(-(1 - p) * float(advantage_G[-1]) - weight) < 1e-12
        assert abs(query_weight(method, p) - weight) < 1e-12
        assert abs(query_weight(name, p) - weight) < 1e-12


def test_p_comes_from_correctness_not_from_the_shaped_reward() -> None:
    correct_PG, reward_PG = group(12), group(12)
    reward_PG[0, :4] -= 0.25
    plain_PG = get("grpo").advantages(reward_PG, correct_PG)
    # scale(12/16) = 2 sqrt(3/16) = sqrt(3)/2, whatever the rewards are.
    assert torch.allclose(get("mcpo").advantages(reward_PG, correct_PG), plain_PG / (math.sqrt(3) / 2), atol=1e-12)


def numpy_advantages(reward: np.ndarray, correct: np.ndarray, reweight: bool, ddof: int) -> np.ndarray:
    """The same formulas, group by group and with loops, sharing no code with the methods."""
    out = np.zeros(reward.shape)
    for i, (r, c) in enumerate(zip(reward, correct, strict=True)):
        p = c.sum() / len(c)
        if p in (0, 1) or r.std() < 1e-9:
            continue
        scale = 2 * math.sqrt(p * (1 - p)) if reweight and p > 0.5 else 1.0
        for j in range(len(r)):
            out[i, j] = (r[j] - r.mean()) / (r.std(ddof=ddof) * scale)
    return out


@given(st.integers(0, 2**32 - 1), st.integers(2, 16), st.integers(0, 1))
def test_against_numpy(seed: int, rollouts: int, ddof: int) -> None:
    rng = np.random.default_rng(seed)
    correct = (rng.random((6, rollouts)) < rng.random((6, 1))).astype(float)
    reward = correct - 0.5 * (rng.random((6, rollouts)) < 0.2)
    for method, reweight in ((get("dapo", ddof=ddof), False), (get("mcpo", ddof=ddof), True)):
        ours = method.advantages(torch.tensor(reward), torch.tensor(correct)).numpy()
        assert np.isfinite(ours).all()
        assert ours == pytest.approx(numpy_advantages(reward, correct, reweight, ddof), abs=1e-12)
        assert ours.sum(-1) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_equal_rewards_give_zero_also_where_floats_do_not_add_up(name: str) -> None:
    reward_PG = torch.full((1, 10), 0.1, dtype=torch.float64)
    mixed_PG = torch.tensor([[1.0] * 5 + [0.0] * 5])
    assert not get(name).advantages(reward_PG, mixed_PG).any()
