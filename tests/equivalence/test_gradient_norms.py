"""The effect of the scale of a loss on training: AdamW divides it out, `train.grad_clip` does not."""

import dataclasses
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.methods import Method, TokenBatch, TokenLoss
from mcpo_cli.methods.mcpo import Mcpo
from tests.equivalence.test_update import SPEC, graded, updater_of
from tests.policies import new_policy

FACTOR = 8.0
NEVER = 1e9


@dataclass(frozen=True)
class Scaled(Mcpo):
    """MCPO with both terms of its loss multiplied by FACTOR."""

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        terms = super().token_loss(batch).terms
        return TokenLoss(tuple(dataclasses.replace(term, weight_B=term.weight_B * FACTOR) for term in terms))


def trained(rollouts: Rollouts, method: Method, clip: float) -> tuple[Tensor, list[float]]:
    """The change of the weights by six gradient steps, as one vector, and the norms of their gradients."""
    policy, train = new_policy(), dataclasses.replace(SPEC.train, grad_clip=clip)
    updater, batch = updater_of(policy, method, train, micro_batch=6), graded(rollouts, method)
    norms = [row["sums"]["train/grad_norm"][0] for step in (1, 2, 3) for row in updater.global_step(batch, step)[1]]
    pairs = zip(policy.parameters(), new_policy().parameters(), strict=True)
    return torch.cat([(after - before).detach().flatten() for after, before in pairs]), norms


def off(found: Tensor, expected: Tensor) -> float:
    """The norm of the difference over that of `expected`."""
    return float((found - expected).norm() / expected.norm())


def test_a_clip_in_proportion_to_the_norm_undoes_the_scale_of_a_loss(rollouts: Rollouts) -> None:
    uncut, norms = trained(rollouts, Mcpo(), NEVER)
    clip = sum(sorted(norms)[2:4]) / 2
    cut, norms = trained(rollouts, Mcpo(), clip)
    assert 0 < sum(norm > clip for norm in norms) < len(norms)
    # The scale of a loss does not matter without a clip, or if norms and clip are in proportion.
    assert off(trained(rollouts, Scaled(), NEVER)[0], uncut) < 1e-3
    matched, scaled = trained(rollouts, Scaled(), FACTOR * clip)
    assert off(matched, cut) < 1e-3
    assert scaled == pytest.approx([FACTOR * norm for norm in norms], rel=1e-3)
    # With the same clip it does.
    assert off(trained(rollouts, Scaled(), clip)[0], cut) > 0.01
