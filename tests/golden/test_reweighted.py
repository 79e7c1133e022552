"""The knobs on the query weight: hand-computed groups, a second implementation, and the analytic weight."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mcpo_cli.methods import Method, get, query_weight

G = 16
OPTIONS = st.fixed_dictionaries(
    {
        "reweight": st.booleans(),
        "majority_weight": st.sampled_from([0.5, 1.0, 2.0]),
        "clip_advantage": st.sampled_from([0.0, 0.3, 1.0, 2.0]),
        "renormalise": st.booleans(),
    }
)


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


# By hand: without reweight A+ = sqrt((1 - p) / p) and A- = -sqrt(p / (1 - p)); at p = 15/16 MCPO has 8/15 and -8.
@pytest.mark.parametrize(
    ("options", "right", "expected"),
    [
        ({}, 15, (8 / 15, -8)),
        ({"clip_advantage": 2.0}, 15, (8 / 15, -2)),
        ({"clip_advantage": 2.0}, 1, (2, -1 / math.sqrt(15))),
        ({"clip_advantage": 2.0}, 12, (2 / 3, -2)),
        ({"clip_advantage": 0.5}, 15, (0.5, -0.5)),
        ({"reweight": False, "majority_weight": 0.5}, 12, (1 / math.sqrt(12), -math.sqrt(3) / 2)),
        ({"reweight": False, "majority_weight": 2.0}, 12, (2 / math.sqrt(3), -2 * math.sqrt(3))),
        ({"reweight": False, "majority_weight": 2.0}, 8, (1, -1)),
        ({"reweight": False, "majority_weight": 2.0}, 4, (math.sqrt(3), -1 / math.sqrt(3))),
        ({"majority_weight": 2.0}, 15, (16 / 15, -16)),
        ({"majority_weight": 2.0, "clip_advantage": 1.0}, 15, (1, -1)),
    ],
)
def test_hand_computed_groups(options: dict[str, float], right: int, expected: tuple[float, float]) -> None:
    assert pair(get("reweighted", **options), right) == pytest.approx(expected, abs=1e-12)


def test_renormalised_batch_by_hand() -> None:
    """p = 1/2 and 15/16: mean |A| is 1 and sqrt(15)/8 without the reweight, 1 and 1 with it."""
    factor = (1 + math.sqrt(15) / 8) / 2
    method = get("reweighted", renormalise=True)
    assert pair(method, 8, 15) == pytest.approx((factor, -factor), abs=1e-12)
    assert pair(method, 15, 8) == pytest.approx((8 / 15 * factor, -8 * factor), abs=1e-12)
    # The reweight does not change this batch, so there is nothing to renormalise.
    assert pair(method, 8, 4, 16, 0) == pytest.approx((1, -1), abs=1e-12)


def test_the_shaped_signal_of_mastered_prompts_is_not_weighted() -> None:
    reward_PG = groups(G)
    reward_PG[0, 0] -= 0.5
    shaped = [
        get("reweighted", degenerate="shaped", majority_weight=weight).advantages(reward_PG, groups(G))
        for weight in (1.0, 2.0)
    ]
    assert torch.equal(*shaped)


def numpy_advantages(correct: np.ndarray, options: dict[str, float]) -> np.ndarray:
    """Group by group and with loops, sharing no code with the method."""
    out, plain = np.zeros(correct.shape), np.zeros(correct.shape)
    for i, c in enumerate(correct):
        p = c.mean()
        if p in (0, 1):
            continue
        for j, right in enumerate(c):
            plain[i, j] = math.sqrt((1 - p) / p) if right else -math.sqrt(p / (1 - p))
            a = plain[i, j]
            if p > 0.5:
                a *= options["majority_weight"] / (2 * math.sqrt(p * (1 - p)) if options["reweight"] else 1)
            cut = options["clip_advantage"] or math.inf
            out[i, j] = max(-cut, min(cut, a))
    if options["renormalise"] and out.any():
        out *= abs(plain).mean(-1).sum() / abs(out).mean(-1).sum()
    return out


@given(OPTIONS, st.integers(0, 2**32 - 1))
def test_against_numpy(options: dict[str, float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    correct = (rng.random((6, G)) < rng.random((6, 1))).astype(float)
    ours = get("reweighted", **options).advantages(torch.tensor(correct), torch.tensor(correct)).numpy()
    assert ours == pytest.approx(numpy_advantages(correct, options), abs=1e-11)


@given(OPTIONS, st.integers(0, G))
def test_the_analytic_weight_is_that_of_a_group(options: dict[str, float], right: int) -> None:
    """mean_i (c_i - p) A_i of a group; of the renormalised ones, up to the factor of a batch."""
    method = get("reweighted", **{**options, "renormalise": False})
    correct_PG = groups(right)
    measured = float(((correct_PG - right / G) * method.advantages(correct_PG, correct_PG)).mean())
    assert query_weight(method, right / G) == pytest.approx(measured, abs=1e-12)
    assert query_weight(get("reweighted", **options), right / G) == query_weight(method, right / G)
