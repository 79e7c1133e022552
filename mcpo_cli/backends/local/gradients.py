"""Gradients of single prompts, measured under the policy that sampled the batch and before the update.

This changes no weight, no `.grad` and no random number. A gradient is as large as the model, so only one prompt's
gradients are kept: each is computed twice, first for the means over prompts, then for its products with the means.
Shapes as in `update.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.update import GradedBatch, Updater, crop, log_probs
from mcpo_cli.methods import reduce
from mcpo_cli.records import GradientRow

Vector = Sequence[Tensor]
"""A gradient: a tensor for each trained tensor of the policy."""


@dataclass(frozen=True)
class Direction:
    """A prompt's direction v and, for 0 < p < 1, the contrast u of Eq. 6; both computed when asked for."""

    prompt: str
    p: float
    v: Callable[[], Vector]
    u: Callable[[], Vector] | None = None


def update_direction(updater: Updater, prompt: str, group: GradedBatch) -> Direction:
    """Minus the gradient of the loss of a group (P = 1) with correct and incorrect rollouts.

    The loss is the update's with the group as the whole mini-batch, so its size does not depend on the batch.
    u is the gradient of mean s+ - mean s-, s the mean over a response's tokens of the ratio (Eq. 5).
    """
    policy, total = updater.policy, group.total(updater.train.max_response)
    if updater.method.prepares:
        group = updater.prepared(group, total, seed=0, on_policy=True)

    def v() -> Vector:
        tokens = updater.tokens(group, total)
        return _gradient(-reduce(updater.loss(tokens), tokens.mask_BT), policy)

    def u() -> Vector:
        tokens = updater.tokens(group, total)
        s_B, right_B = tokens.mean_B(tokens.log_ratio_BT.exp()), group.correct_PG[group.used_PG]
        return _gradient(s_B[right_B].mean() - s_B[~right_B].mean(), policy)

    return Direction(prompt, float(group.correct_PG[group.used_PG].double().mean()), v, u)


def likelihood_direction(policy: Policy, prompt: str, rollouts: Rollouts) -> Direction:
    """The gradient of the mean token log-likelihood of a mastered group (P = 1), a mean over its rollouts."""
    group = crop(rollouts)

    def v() -> Vector:
        logp_PG = (log_probs(policy, group) * group.mask_PGT).sum(-1) / group.length_PG
        return _gradient(logp_PG.mean(), policy)

    return Direction(prompt, 1.0, v)


def rows(step: int, directions: Sequence[Direction]) -> list[GradientRow]:
    """One row per direction; all were measured under the same policy."""
    update_mean = _mean(direction.v() for direction in directions if direction.u is not None)
    mastered_mean = _mean(direction.v() for direction in directions if direction.u is None)
    return [_row(step, direction, update_mean, mastered_mean) for direction in directions]


def _row(step: int, direction: Direction, update_mean: Vector | None, mastered_mean: Vector | None) -> GradientRow:
    v = direction.v()
    norm = _dot(v, v) ** 0.5
    row = GradientRow(step=step, prompt=direction.prompt, p=direction.p, norm=norm)
    if update_mean is not None:
        row["with_update"] = _dot(v, update_mean)
    if mastered_mean is not None:
        row["with_mastered"] = _dot(v, mastered_mean)
    if direction.u is not None and (square := _dot(u := direction.u(), u)):
        weight = _dot(v, u) / square
        row["weight"] = weight
        if norm:
            residual = sum(float((a.double() - weight * b.double()).square().sum()) for a, b in zip(v, u, strict=True))
            row["residual"] = residual**0.5 / norm
    return row


def _gradient(value: Tensor, policy: Policy) -> Vector:
    """The gradient of `value` by all trained tensors."""
    return torch.autograd.grad(value, policy.parameters())


def _dot(a: Vector, b: Vector) -> float:
    """The inner product, in float64."""
    return sum(float(x.double().flatten() @ y.double().flatten()) for x, y in zip(a, b, strict=True))


def _mean(vectors: Iterable[Vector]) -> Vector | None:
    """The mean, in float64; None without vectors."""
    total, count = list[Tensor](), 0
    for vector in vectors:
        count += 1
        if not total:
            total = [part.to(torch.float64, copy=True) for part in vector]
            continue
        for part, summand in zip(total, vector, strict=True):
            part.add_(summand)
    return [part / count for part in total] or None
