"""Eq. 2-3 and 7-11: hinge-KL values and gradients, the clipped surrogate against nested loops."""

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcpo_cli.methods import Method, TokenBatch, get, reduce
from mcpo_cli.methods.mcpo import hinge_kl
from mcpo_cli.testing import mini_batch, step
from mcpo_cli.testing.batches import LIMIT

DELTA = 0.01
VARIANTS = [
    get("grpo"),
    get("grpo", aggregation="seq-mean-token-sum"),
    get("dapo"),
    get("dapo", aggregation="token-mean"),
    get("dapo", aggregation="constant"),
    get("mcpo"),
    get("mcpo", anchor="previous_step"),
    get("mcpo", normalize="all", beta=2.5, delta=0.1),
    get("mcpo", hinge=False),
    get("mcpo", reweight=False, aggregation="token-mean"),
]


def k3(d: float) -> float:
    return math.exp(d) - d - 1


def test_hinge_gradient_by_finite_differences() -> None:
    d = torch.tensor(
        [-1.0, -0.3, -0.0101, -0.0099, 0.0, 0.0099, 0.0101, 0.3, 1.0], dtype=torch.float64, requires_grad=True
    )
    hinge_kl(d, DELTA).sum().backward()
    assert d.grad is not None
    outside = d.detach().abs() > DELTA
    assert torch.allclose(d.grad, d.detach().expm1() * outside, atol=1e-15)
    h = 1e-6
    numeric = (hinge_kl(d.detach() + h, DELTA) - hinge_kl(d.detach() - h, DELTA)) / (2 * h)
    assert torch.allclose(d.grad, numeric, atol=1e-8)


@example(d=1.0, delta=0.99999)
@given(st.floats(-5, 5), st.floats(0, 1))
def test_hinge_is_never_negative_and_zero_only_inside_the_budget(d: float, delta: float) -> None:
    value = float(hinge_kl(torch.tensor(d, dtype=torch.float64), delta))
    if abs(d) <= delta:
        assert value == 0
    else:
        edge = math.copysign(delta, d)
        # Near the edge the expected value is a difference of two nearly equal numbers, which rounding decides.
        rounding = 8 * sys.float_info.epsilon * math.exp(abs(d))
        assert value == pytest.approx(math.expm1(d) - d - (math.expm1(edge) - edge), rel=1e-12, abs=rounding)
        assert value >= 0


def random_batch(seed: int, method: Method, right: tuple[int, ...] = (1, 3, 4)) -> TokenBatch:
    """A mini-batch of groups with these numbers of correct rollouts of 4, in float64."""
    of = step(right, seed=seed)
    batch = mini_batch(method, of, method.signals(of, {})[0], drift=0.3, seed=seed + 1)
    return batch.replace(logp_BT=batch.logp_BT.detach())


def numpy_loss(method: Method, batch: TokenBatch) -> float:
    """The objective written as nested loops over sequences and tokens, sharing no code with the methods."""
    surrogate = hinge = 0.0
    sequences, counted = len(batch.mask_BT), int(batch.mask_BT.sum())
    anchor_BT = batch.logp_previous_BT if getattr(method, "anchor", "") == "previous_step" else batch.logp_old_BT
    assert anchor_BT is not None
    has_hinge = method.name == "mcpo" and method.hinge
    for b in range(len(batch.mask_BT)):
        length = int(batch.mask_BT[b].sum())
        a = float(batch.advantage_BT[b, 0])
        of_sequence = of_hinge = 0.0
        for t in range(length):
            r = math.exp(float(batch.logp_BT[b, t] - batch.logp_old_BT[b, t]))
            of_sequence += min(r * a, min(max(r, 1 - method.clip_low), 1 + method.clip_high) * a)
            d = float(batch.logp_BT[b, t] - anchor_BT[b, t])
            delta = getattr(method, "delta", 0.0)
            of_hinge += 0.0 if abs(d) <= delta else k3(d) - k3(math.copysign(delta, d))
        surrogate += (
            of_sequence
            / {
                "token-mean": counted,
                "seq-mean-token-mean": length * sequences,
                "seq-mean-token-sum": sequences,
                "constant": sequences * LIMIT,
            }[method.aggregation]
        )
        if has_hinge and batch.columns["mastered"][b]:
            held = int(batch.columns["mastered"].sum()) if method.normalize == "mastered" else sequences
            hinge += of_hinge / length / held
    return -surrogate + (method.beta * hinge if has_hinge else 0.0)


@pytest.mark.parametrize("method", VARIANTS, ids=str)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_loss_against_nested_loops(method: Method, seed: int) -> None:
    batch = random_batch(seed, method)
    loss = reduce(method.token_loss(batch), batch.mask_BT)
    assert float(loss) == pytest.approx(numpy_loss(method, batch), abs=1e-12)


def test_a_mini_batch_without_mastered_prompts_has_no_hinge_and_no_nan() -> None:
    batch = random_batch(3, get("mcpo"), right=(0, 1, 3))
    with_hinge, without = (
        float(reduce(method.token_loss(batch), batch.mask_BT)) for method in (get("mcpo"), get("mcpo", hinge=False))
    )
    assert np.isfinite(with_hinge)
    assert with_hinge == without
