"""The extensions of MCPO: each changes only what its name says."""

import math

import pytest
import torch

from mcpo_cli.methods import get, query_weight, reduce
from mcpo_cli.methods.mcpo import hinge_kl
from mcpo_cli.testing import mini_batch
from mcpo_cli.testing import step as random_step
from tests.golden.literature import signals, step


def test_at_its_defaults_it_is_mcpo() -> None:
    of, paper, extended = random_step(), get("mcpo"), get("mcpo_extended")
    batches = [mini_batch(method, of, signals(method, of)) for method in (paper, extended)]
    losses = [
        reduce(method.token_loss(batch), batch.mask_BT)
        for method, batch in zip((paper, extended), batches, strict=True)
    ]
    assert losses[0] == losses[1]
    assert torch.equal(*(signals(method, of).has_gradient_PG for method in (paper, extended)))


def test_right_rollouts_of_almost_mastered_prompts_are_held() -> None:
    of = step([[1] * 9 + [0], [1] * 8 + [0] * 2, [1] * 10])
    found = signals(get("mcpo_extended", mastery=0.9), of)
    assert found.columns["mastered"].sum(-1).tolist() == [9, 0, 10]
    assert not found.columns["mastered"][0, 9]
    assert found.has_gradient_PG.sum(-1).tolist() == [10, 10, 10]


@pytest.mark.parametrize(("right", "factor"), [(2, 1), (3, 2 / math.sqrt(3)), (7, 1.5)])
def test_the_cap_bounds_the_factor(right: int, factor: float) -> None:
    """1/(2 sqrt(p(1 - p))) is 2/sqrt(3) at p = 3/4 (of 4), and 4/sqrt(7) = 1.512 at p = 7/8, cut to 1.5."""
    G = 8 if right == 7 else 4
    of = step([[1] * right + [0] * (G - right)])
    found_PG = signals(get("mcpo_extended", reweight_cap=1.5), of).advantage
    assert torch.allclose(found_PG, signals(get("grpo"), of).advantage * factor)
    weight = query_weight(get("mcpo_extended", reweight_cap=1.5), right / G)
    assert float(weight) == pytest.approx(float(query_weight("grpo", right / G)) * factor)


def test_delta_follows_the_share_of_active_tokens() -> None:
    method, of = get("mcpo_extended", target_active=0.1), step([(1, 1), (1, 0)])
    found, state = method.signals(of, {})
    assert found.columns["delta"].tolist() == [[0.01, 0.01], [0.01, 0.01]]
    # Twice the target and more: up by the rate, .2. None active: down by the rate. At the target: unchanged.
    for share, change in ((0.5, 0.2), (0.2, 0.2), (0.15, 0.1), (0.1, 0.0), (0.0, -0.2)):
        after = method.learn(state, {"hinge/tokens_active": share})
        assert float(after["delta"]) == pytest.approx(0.01 * math.exp(change))
    assert method.learn(state, {}) == state
    assert get("mcpo_extended").learn(state, {"hinge/tokens_active": 0.5}) == state
    wider = method.learn(state, {"hinge/tokens_active": 0.5})
    again, _ = method.signals(of, wider)
    assert again.columns["delta"][0, 0] == float(wider["delta"])


def test_the_hinge_uses_the_budget_of_the_state() -> None:
    method, of = get("mcpo_extended", target_active=0.1), random_step((4, 4))
    found, _ = method.signals(of, {"delta": torch.tensor([0.15], dtype=torch.float64)})
    batch = mini_batch(method, of, found)
    (_, hinge) = method.token_loss(batch).terms
    assert torch.equal(hinge.value_BT, hinge_kl(batch.log_ratio_BT, 0.15))
    inside_BT = (batch.log_ratio_BT.abs() <= 0.15) & batch.mask_BT
    share = 1 - float(inside_BT.sum() / batch.mask_BT.sum())
    sums = method.report(batch).sums
    active, tokens = sums["hinge/tokens_active"]
    assert float(active / tokens) == pytest.approx(share)
    mastered_BT = batch.mask_BT & batch.columns["mastered"].bool()[:, None]
    drift, count = sums["hinge/drift_sum"]
    assert float(drift.detach()) == pytest.approx(float((batch.log_ratio_BT.detach().abs() * mastered_BT).sum()))
    assert int(count) == 0
