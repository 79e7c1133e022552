"""RLOO (arXiv 2402.14740): each rollout is compared with the mean of the others of its group.

A = r - mean of the other rewards = (r - mean r) G/(G-1); A_PG, rewards PG. The loss is PPO's clipped surrogate.

Defaults: clip .2/.2 and the suite's aggregation, as for `grpo`. Edge cases: groups whose rewards are equal have A = 0.
Reduction: `dr_grpo`'s advantage times G/(G-1), so the two differ by the step size only.

Disagreement: verl 0.9.1 (`rloo`, `rloo_vectorized`) keeps a ratio for each token; TRL 1.16's `RLOOTrainer` has one
ratio of the whole sequence, e^(sum of d), clipped, and the mean over sequences. Default `ratio=token`;
`ratio=sequence-sum` is TRL's. Checked: advantages equal verl's functions; `sequence-sum` was read in TRL's code, not
executed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import Floats, TokenBatch
from mcpo_cli.methods.group_relative import Clipped, GroupRelative

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Rloo(Clipped, GroupRelative):
    """REINFORCE Leave-One-Out."""

    name: ClassVar[str] = "rloo"

    ratio: Literal["token", "sequence-sum"] = "token"
    """A ratio for each token (verl), or one for the sequence, the product of its tokens' (TRL)."""

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """p(1 - p) G/(G-1)."""
        return p * (1 - p) / (1 - 1 / rollouts)

    def divisor(self, reward_PG: Tensor, p_P1: Tensor) -> Tensor:
        return p_P1 * 0 + (1 - 1 / reward_PG.shape[-1])

    def log_ratio(self, batch: TokenBatch) -> Tensor:
        """That of each token, or their sum, the same for every token of a sequence."""
        if self.ratio == "token":
            return super().log_ratio(batch)
        return (batch.log_ratio_BT * batch.mask_BT).sum(-1, keepdim=True).expand_as(batch.log_ratio_BT)
