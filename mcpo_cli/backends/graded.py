"""The graded rollouts of a global step, of any backend, and rewards besides the verdict.

Shapes: P prompt groups of at most G rollouts.

A group may have fewer rollouts than others (`sampler=knapsack`). Then its last places are empty: they are not correct,
have reward, length, entropy and log-probability 0, and count in no mean over rollouts. Accuracy and reward count graded
rollouts only: an answer that could not be graded is neither correct nor incorrect.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcpo_cli.data.base import Problem
from mcpo_cli.seeds import stream

if TYPE_CHECKING:
    from torch import Tensor

FEWEST = 2
"""The fewest graded rollouts of a group that a method can compare."""


@dataclass(frozen=True)
class Graded:
    """The graded rollouts of all groups sampled in a step, before any filter."""

    problems: Sequence[Problem]
    correct_PG: Tensor
    reward_PG: Tensor
    length_PG: Tensor
    """Response lengths in tokens, including the end token; 0 in an empty place."""
    ended_PG: Tensor
    """True if the rollout ended with the end token; the others were truncated."""
    same_P: Tensor
    """Share of identical pairs of rollouts, see `equal_pairs`."""
    entropy_PG: Tensor | None = None
    """Entropy of the policy in nats, mean over each rollout's tokens; None if unknown."""
    logp_PG: Tensor | None = None
    """Log-probability of each whole rollout under the distribution it was sampled from; None if unknown."""
    graded_PG: Tensor | None = None
    """False where a rollout could not be graded; None if all were."""

    @property
    def drawn_PG(self) -> Tensor:
        """False in empty places."""
        return self.length_PG > 0

    @property
    def judged_PG(self) -> Tensor:
        """True for rollouts with a verdict."""
        return self.drawn_PG if self.graded_PG is None else self.drawn_PG & self.graded_PG

    @property
    def rollouts_P(self) -> Tensor:
        """Graded rollouts of each group."""
        return self.judged_PG.sum(-1)

    @property
    def informed_P(self) -> Tensor:
        """Groups with enough graded rollouts (FEWEST) for an accuracy; the others are in no metric and have no row."""
        return self.rollouts_P >= FEWEST

    @property
    def p_P(self) -> Tensor:
        """Accuracy of each group among its graded rollouts, float64; NaN without any."""
        return self.correct_PG.double().sum(-1) / self.rollouts_P

    @property
    def mastered_P(self) -> Tensor:
        """Groups whose graded rollouts are all correct."""
        return (self.correct_PG.sum(-1) == self.rollouts_P) & self.informed_P

    @property
    def truncated_PG(self) -> Tensor:
        """Rollouts that did not end."""
        return ~self.ended_PG & self.drawn_PG

    def mean_P(self, value_PG: Tensor) -> Tensor:
        """The mean of `value_PG` over each group's rollouts, float64."""
        return (value_PG.double() * self.drawn_PG).sum(-1) / self.drawn_PG.sum(-1)

    def mean(self, value_PG: Tensor) -> float:
        """The mean of `value_PG` over all rollouts."""
        return float(value_PG[self.drawn_PG].double().mean())

    def informed(self) -> Graded:
        """The groups of `informed_P` alone."""
        informed_P = self.informed_P
        if informed_P.all():
            return self
        tensors = {name: value for name, value in vars(self).items() if name != "problems" and value is not None}
        rows = {name: value[informed_P] for name, value in tensors.items()}
        problems = [problem for problem, flag in zip(self.problems, informed_P.tolist(), strict=True) if flag]
        return dataclasses.replace(self, problems=problems, **rows)


def equal_pairs(token_GT: Tensor, drawn_G: Tensor | None = None) -> Tensor:
    """The share of identical pairs among two or more rollouts; leading axes are kept.

    token_GT: responses, padded with a token that no response holds before its end. drawn_G: the places with a rollout;
    None for all.
    """
    if drawn_G is None:
        drawn_G = token_GT.new_ones(token_GT.shape[:-1]).bool()
    same_GG = drawn_G[..., :, None] & drawn_G[..., None, :]
    # One position at a time: comparing all at once takes G times the memory of the responses.
    for token_G in token_GT.unbind(-1):
        same_GG &= token_G[..., :, None] == token_G[..., None, :]
    count = drawn_G.sum(-1)
    return (same_GG.double().sum((-2, -1)) - count) / (count * (count - 1))


def overlong_penalty(length: Tensor, max_response: int, cache: int, factor: float) -> Tensor:
    """DAPO's soft overlong punishment (arXiv 2503.14476, Eq. 13), elementwise, in [-factor, 0].

    Args:
        length: response lengths in tokens, including the end token.
        max_response: hard limit in tokens.
        cache: tokens before the limit over which the penalty grows linearly; 0 switches the penalty off.
    """
    if cache == 0:
        return length.double() * 0
    return -factor * ((length - (max_response - cache)).double() / cache).clamp(0, 1)


def random_rewards(correct_PG: Tensor, seed: int, step: int, first: int) -> Tensor:
    """A fair coin for each rollout in place of its verdict, like `correct_PG` (train.reward=random).

    Args:
        correct_PG: only its shape and type are used.
        first: index of the first prompt in the global step; each prompt has its own random stream.
    """
    P, G = correct_PG.shape
    coins = [random.Random(stream(seed, "reward", step, first + i)).choices((0, 1), k=G) for i in range(P)]
    return correct_PG.new_tensor(coins)
