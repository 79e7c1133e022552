"""Where single prompts pull the weights, measured under the policy that sampled the batch and before the update.

Nothing is changed by it: no weight, no `.grad`, no random number. Shapes as in `update.py`; N all weights in a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.sampler import Rollouts
from mcpo_cli.backends.local.update import GradedBatch, Updater, crop, log_probs
from mcpo_cli.methods import reduce
from mcpo_cli.records import GradientRow


@dataclass(frozen=True)
class Direction:
    """A prompt's direction v_N, what `GradientRow` says of it, and for 0 < p < 1 the contrast u_N of Eq. 6."""

    prompt: str
    p: float
    v_N: Tensor
    u_N: Tensor | None = None


def update_direction(updater: Updater, prompt: str, group: GradedBatch) -> Direction:
    """Of a group (P = 1) with right and wrong rollouts: minus the gradient of its own loss.

    The loss is that of the update with the group as the whole mini-batch, so its size does not depend on the batch's.
    u is the gradient of mean s+ - mean s-, s the mean over a response's tokens of the ratio (Eq. 5).
    """
    policy, method, total = updater.policy, updater.method, group.total(updater.train.max_response)
    if method.prepares:
        group = updater.prepared(group, total, seed=0, at_rest=True)
    tokens = updater.tokens(group, total)
    loss = reduce(method.token_loss(tokens), tokens.mask_BT)
    s_B = tokens.mean_B(tokens.log_ratio_BT.exp())
    right_B = group.correct_PG.flatten()
    contrast = s_B[right_B].mean() - s_B[~right_B].mean()
    v_N = _gradient(-loss, policy, keep=True)
    return Direction(prompt, float(group.correct_PG.double().mean()), v_N, _gradient(contrast, policy))


def likelihood_direction(policy: Policy, prompt: str, rollouts: Rollouts) -> Direction:
    """Of a mastered group (P = 1): the gradient of its rollouts' mean token log-likelihood, a mean over rollouts."""
    group = crop(rollouts)
    logp_PG = (log_probs(policy, group) * group.mask_PGT).sum(-1) / group.length_PG
    return Direction(prompt, 1.0, _gradient(logp_PG.mean(), policy))


def rows(step: int, found: Sequence[Direction]) -> list[GradientRow]:
    """One row a direction; all were measured under the same policy."""
    update_N = _mean([each.v_N for each in found if each.u_N is not None])
    mastered_N = _mean([each.v_N for each in found if each.u_N is None])
    return [_row(step, each, update_N, mastered_N) for each in found]


def _row(step: int, found: Direction, update_N: Tensor | None, mastered_N: Tensor | None) -> GradientRow:
    v_N = found.v_N.double()
    norm = float(v_N.norm())
    row = GradientRow(step=step, prompt=found.prompt, p=found.p, norm=norm)
    if update_N is not None:
        row["with_update"] = float(v_N @ update_N)
    if mastered_N is not None:
        row["with_mastered"] = float(v_N @ mastered_N)
    if found.u_N is not None and (square := float(found.u_N.double().square().sum())):
        weight = float(v_N @ found.u_N.double()) / square
        row["weight"] = weight
        if norm:
            row["residual"] = float((v_N - weight * found.u_N.double()).norm()) / norm
    return row


def _gradient(value: Tensor, policy: Policy, keep: bool = False) -> Tensor:
    """The gradient of `value` by all weights; keep: another one by the same graph follows."""
    return torch.cat([part.flatten() for part in torch.autograd.grad(value, policy.parameters(), retain_graph=keep)])


def _mean(vectors: Sequence[Tensor]) -> Tensor | None:
    """In float64; None of nothing."""
    return sum((v_N.double() for v_N in vectors[1:]), vectors[0].double()) / len(vectors) if vectors else None
