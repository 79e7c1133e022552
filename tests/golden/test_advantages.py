"""Eq. 1 and 12-14, and the knobs on the query weight: by hand, by proof A.1, by properties, by a second computation."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mcpo_cli.methods import Method, get, query_weight

G = 16
METHODS = ["dapo", "grpo", "mcpo", "mcpo_extended", "reweighted"]
"""Methods with the advantages of Eq. 1 and 12-14; the zoo has separate tests."""
OPTIONS = st.fixed_dictionaries(
    {
        "reweight": st.booleans(),
        "majority_weight": st.sampled_from([0.5, 1.0, 2.0]),
        "clip_advantage": st.sampled_from([0.0, 0.3, 1.0, 2.0]),
        "renormalise": st.booleans(),
    }
)
"""Options of `reweighted`."""


def groups(*right: int) -> torch.Tensor:
    """One group of G rollouts per count, of which that number, the first ones, are correct."""
    return torch.tensor([[float(place < count) for place in range(G)] for count in right], dtype=torch.float64)


def pair(method: Method, right: int, *beside: int) -> tuple[float, float]:
    """The advantages of a correct and an incorrect answer in a group, in a batch with others."""
    batch_PG = groups(right, *beside)
    advantage_G = method.advantages(batch_PG, batch_PG)[0]
    assert set(advantage_G[:right].tolist()) == {float(advantage_G[0])}
    assert set(advantage_G[right:].tolist()) == {float(advantage_G[-1])}
    return float(advantage_G[0]), float(advantage_G[-1])


# By hand: A+ = sqrt((1 - p) / p) and A- = -sqrt(p / (1 - p)); at p = 15/16, std = sqrt(15)/16, so A+ = 1/sqrt(15) and
# A- = -sqrt(15). scale = 2 sqrt(15)/16 = sqrt(15)/8, so MCPO has A+ = 8/15 and A- = -8.
@pytest.mark.parametrize(
    ("name", "options", "right", "expected"),
    [
        ("grpo", {}, 8, (1, -1)),
        ("grpo", {}, 15, (1 / math.sqrt(15), -math.sqrt(15))),
        ("grpo", {}, 1, (math.sqrt(15), -1 / math.sqrt(15))),
        ("grpo", {}, 4, (math.sqrt(3), -1 / math.sqrt(3))),
        ("mcpo", {}, 8, (1, -1)),
        ("mcpo", {}, 4, (math.sqrt(3), -1 / math.sqrt(3))),
        ("mcpo", {}, 15, (8 / 15, -8)),
        ("mcpo", {}, 12, (2 / 3, -2)),
        ("mcpo", {}, 9, (8 / 9, -8 / 7)),
        ("reweighted", {}, 15, (8 / 15, -8)),
        ("reweighted", {"clip_advantage": 2.0}, 15, (8 / 15, -2)),
        ("reweighted", {"clip_advantage": 2.0}, 1, (2, -1 / math.sqrt(15))),
        ("reweighted", {"clip_advantage": 2.0}, 12, (2 / 3, -2)),
        ("reweighted", {"clip_advantage": 0.5}, 15, (0.5, -0.5)),
        ("reweighted", {"reweight": False, "majority_weight": 0.5}, 12, (1 / math.sqrt(12), -math.sqrt(3) / 2)),
        ("reweighted", {"reweight": False, "majority_weight": 2.0}, 12, (2 / math.sqrt(3), -2 * math.sqrt(3))),
        ("reweighted", {"reweight": False, "majority_weight": 2.0}, 8, (1, -1)),
        ("reweighted", {"reweight": False, "majority_weight": 2.0}, 4, (math.sqrt(3), -1 / math.sqrt(3))),
        ("reweighted", {"majority_weight": 2.0}, 15, (16 / 15, -16)),
        ("reweighted", {"majority_weight": 2.0, "clip_advantage": 1.0}, 15, (1, -1)),
    ],
)
def test_hand_computed_groups(name: str, options: dict[str, Any], right: int, expected: tuple[float, float]) -> None:
    assert pair(get(name, **options), right) == pytest.approx(expected, abs=1e-12)


def test_renormalised_batch_by_hand() -> None:
    """p = 1/2 and 15/16: mean |A| is 1 and sqrt(15)/8 without the reweight, 1 and 1 with it."""
    factor = (1 + math.sqrt(15) / 8) / 2
    method = get("reweighted", renormalise=True)
    assert pair(method, 8, 15) == pytest.approx((factor, -factor), abs=1e-12)
    assert pair(method, 15, 8) == pytest.approx((8 / 15 * factor, -8 * factor), abs=1e-12)
    # The reweight does not change this batch, so there is nothing to renormalise.
    assert pair(method, 8, 4, 16, 0) == pytest.approx((1, -1), abs=1e-12)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("right", [0, G])
def test_degenerate_groups_get_nothing_unless_their_shaped_signal_is_kept(name: str, right: int) -> None:
    reward_PG = groups(right)
    reward_PG[0, 0] -= 0.5
    assert torch.equal(get(name).advantages(reward_PG, groups(right)), torch.zeros(1, G, dtype=torch.float64))
    # One of 16 lower by h: mean -h/16, std h sqrt(15)/16, so A = -sqrt(15) for it and 1/sqrt(15) else.
    advantage_PG = get(name, degenerate="shaped").advantages(reward_PG, groups(right))
    expected = [-math.sqrt(15)] + [1 / math.sqrt(15)] * (G - 1)
    assert advantage_PG[0].tolist() == pytest.approx(expected, abs=1e-12)
    if name == "reweighted":
        weighted = get(name, degenerate="shaped", majority_weight=2.0)
        assert torch.equal(weighted.advantages(reward_PG, groups(right)), advantage_PG)


@pytest.mark.parametrize("name", METHODS)
def test_weight_identity_of_proof_a1(name: str) -> None:
    """p A+ = -(1 - p) A- = sqrt(p(1 - p)) / scale(p) for p = 1/16 .. 15/16."""
    method = get(name)
    for right in range(1, G):
        p = right / G
        if_right, if_wrong = pair(method, right)
        weight = 0.5 if getattr(method, "reweight", False) and p > 0.5 else math.sqrt(p * (1 - p))
        assert abs(p * if_right - weight) < 1e-12
        assert abs(-(1 - p) * if_wrong - weight) < 1e-12
        assert abs(query_weight(method, p) - weight) < 1e-12
        assert abs(query_weight(name, p) - weight) < 1e-12


@given(OPTIONS, st.integers(0, G))
def test_the_analytic_weight_is_that_of_a_group(options: dict[str, Any], right: int) -> None:
    """mean_i (c_i - p) A_i of a group; of the renormalised ones, up to the factor of a batch."""
    method = get("reweighted", **{**options, "renormalise": False})
    correct_PG = groups(right)
    measured = float(((correct_PG - right / G) * method.advantages(correct_PG, correct_PG)).mean())
    assert query_weight(method, right / G) == pytest.approx(measured, abs=1e-12)
    assert query_weight(get("reweighted", **options), right / G) == query_weight(method, right / G)


def test_p_comes_from_correctness_not_from_the_shaped_reward() -> None:
    correct_PG, reward_PG = groups(12), groups(12)
    reward_PG[0, :4] -= 0.25
    plain_PG = get("grpo").advantages(reward_PG, correct_PG)
    # scale(12/16) = 2 sqrt(3/16) = sqrt(3)/2, whatever the rewards are.
    assert torch.allclose(get("mcpo").advantages(reward_PG, correct_PG), plain_PG / (math.sqrt(3) / 2), atol=1e-12)


def numpy_advantages(
    reward: np.ndarray,
    correct: np.ndarray,
    ddof: int,
    *,
    reweight: bool = False,
    majority_weight: float = 1.0,
    clip_advantage: float = 0.0,
    renormalise: bool = False,
) -> np.ndarray:
    """The same formulas, group by group and with loops, sharing no code with the methods."""
    out, plain = np.zeros(reward.shape), np.zeros(reward.shape)
    for i, (r, c) in enumerate(zip(reward, correct, strict=True)):
        p = c.sum() / len(c)
        if p in (0, 1) or r.std() < 1e-9:
            continue
        scale = 2 * math.sqrt(p * (1 - p)) if reweight and p > 0.5 else 1.0
        for j in range(len(r)):
            plain[i, j] = (r[j] - r.mean()) / r.std(ddof=ddof)
            a = plain[i, j] * (majority_weight if p > 0.5 else 1) / scale
            cut = clip_advantage or math.inf
            out[i, j] = max(-cut, min(cut, a))
    if renormalise and out.any():
        out *= abs(plain).sum() / abs(out).sum()
    return out


@given(OPTIONS, st.integers(0, 2**32 - 1), st.integers(2, 16), st.integers(0, 1))
def test_against_numpy(options: dict[str, Any], seed: int, rollouts: int, ddof: int) -> None:
    rng = np.random.default_rng(seed)
    correct = (rng.random((6, rollouts)) < rng.random((6, 1))).astype(float)
    reward = correct - 0.5 * (rng.random((6, rollouts)) < 0.2)
    methods: list[tuple[str, dict[str, Any]]] = [("dapo", {}), ("mcpo", {"reweight": True}), ("reweighted", options)]
    for name, own in methods:
        ours = get(name, ddof=ddof, **own).advantages(torch.tensor(reward), torch.tensor(correct)).numpy()
        assert np.isfinite(ours).all()
        assert ours == pytest.approx(numpy_advantages(reward, correct, ddof, **own), abs=1e-11)
        assert name == "reweighted" or ours.sum(-1) == pytest.approx(np.zeros(6), abs=1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_equal_rewards_give_zero_also_where_floats_do_not_add_up(name: str) -> None:
    reward_PG = torch.full((1, 10), 0.1, dtype=torch.float64)
    mixed_PG = torch.tensor([[1.0] * 5 + [0.0] * 5])
    assert not get(name).advantages(reward_PG, mixed_PG).any()
