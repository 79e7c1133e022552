"""The contract between a method and whatever trains with it.

Shape suffixes: P prompts, G rollouts of a prompt, B sequences, T response tokens. A `_BT` tensor is
padded on the right; `mask_BT` says which tokens are real.

Nothing here imports torch at run time: the math is written on tensor methods, so that planning and
configuration stay light and any backend that owns tensors can call it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from torch import Tensor

Floats = Any
"""A float, a NumPy array or a tensor: anything with +, *, ** and comparison."""


@dataclass(frozen=True)
class MiniBatch:
    """Totals over one whole mini-batch, so that per-sequence weights do not depend on its split.

    sequences: number of rollouts; tokens: number of response tokens; mastered: number of rollouts that
    belong to mastered prompts.
    """

    sequences: int
    tokens: int
    mastered: int


@dataclass(frozen=True)
class TokenBatch:
    """Any part of a mini-batch: a micro-batch, a rank's share, or the whole of it.

    logp_BT: log-probability of each response token under the policy being trained (has the gradient).
    logp_old_BT: the same under the rollout policy. logp_anchor_BT: under the hinge's pi_old (Eq. 7).
    mask_BT: 1 for response tokens. advantage_B: from `Method.advantages`. mastered_B: p = 1.
    total: of the mini-batch this is part of.
    """

    logp_BT: Tensor
    logp_old_BT: Tensor
    logp_anchor_BT: Tensor
    mask_BT: Tensor
    advantage_B: Tensor
    mastered_B: Tensor
    total: MiniBatch


@dataclass(frozen=True)
class TokenLoss:
    """Unreduced losses of a `TokenBatch` with per-sequence weights that are global over the mini-batch."""

    policy_BT: Tensor
    policy_weight_B: Tensor
    hinge_BT: Tensor
    hinge_weight_B: Tensor


def reduce(loss: TokenLoss, mask_BT: Tensor) -> Tensor:
    """Sum of weighted token losses. Adding it over micro-batches or ranks gives the mini-batch loss."""
    policy = ((loss.policy_BT * mask_BT).sum(-1) * loss.policy_weight_B).sum()
    hinge = ((loss.hinge_BT * mask_BT).sum(-1) * loss.hinge_weight_B).sum()
    return policy + hinge


@dataclass(frozen=True)
class Method:
    """Group-relative policy optimization (Eq. 1-3): everything the registered methods share.

    clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high].
    aggregation: how token losses become one number; the paper runs both methods with the default.
    ddof: of the group's standard deviation; 0 as proof A.1 needs, 1 as in verl's GRPO.
    degenerate: advantage of groups with p = 0 or 1: `zero`, or `shaped` to keep what overlong shaping
    leaves there.
    dynamic_sampling: keep only groups with 0 < p < 1 and refill the batch (DAPO).
    """

    name: ClassVar[str]

    clip_low: float = dataclasses.field(default=0.2, metadata={"ge": 0.0, "lt": 1.0})
    clip_high: float = dataclasses.field(default=0.2, metadata={"ge": 0.0})
    aggregation: Literal["seq-mean-token-mean", "token-mean"] = "seq-mean-token-mean"
    ddof: int = dataclasses.field(default=0, metadata={"ge": 0, "le": 1})
    degenerate: Literal["zero", "shaped"] = "zero"
    dynamic_sampling: bool = False

    @property
    def label(self) -> str:
        """Short name of this configuration, for run ids and table rows."""
        return self.name

    @property
    def anchors_mastered(self) -> bool:
        """Whether mastered prompts bear a loss; a backend may skip their sequences where not."""
        return False

    @property
    def needs_anchor(self) -> bool:
        """Whether `logp_anchor_BT` must come from the policy before the last optimizer step."""
        return False

    @property
    def drift_budget(self) -> float:
        """How far a token of a mastered prompt may drift for free (Eq. 10), in nats."""
        return 0.0

    def scale(self, p: Floats) -> Floats:
        """Divisor of the advantage (Eq. 13); 1 for every p here. Elementwise over `p` in [0, 1]."""
        return p * 0 + 1

    def query_weight(self, p: Floats) -> Floats:
        """sqrt(p(1 - p)) / scale(p): Eq. 6, Eq. 14 and (A.2). 0 at p = 0 and 1."""
        root = (p * (1 - p)) ** 0.5
        return root / (self.scale(p) + (root == 0))

    def advantages(self, reward_PG: Tensor, correct_PG: Tensor) -> Tensor:
        """A_i = (R_i - mean R) / (std R * scale(p)) of each group: Eq. 1, 12 and 13.

        Args:
            reward_PG: rewards, shaped or not.
            correct_PG: 0 or 1 (or bool); p comes from these, never from the reward.

        Returns:
            A_PG in float64, free of NaN; 0 for groups whose rewards are all equal and, unless
            `degenerate="shaped"`, for groups with p = 0 or 1.
        """
        reward_PG = reward_PG.double()
        p_P1 = correct_PG.double().mean(-1, keepdim=True)
        centered_PG = reward_PG - reward_PG.mean(-1, keepdim=True)
        std_P1 = reward_PG.std(-1, keepdim=True, correction=self.ddof)
        scale_P1 = self.scale(p_P1)
        # scale(1) = 0 under MCPO: a degenerate group that keeps its shaped signal is not reweighted.
        divisor_P1 = std_P1 * scale_P1.where(scale_P1 > 0, scale_P1 + 1)
        # Rewards equal up to rounding carry no signal; dividing their rounding error by itself would.
        bears_P1 = std_P1 > 1e-9
        if self.degenerate == "zero":
            bears_P1 = bears_P1 & (p_P1 > 0) & (p_P1 < 1)
        advantage_PG: Tensor = centered_PG / divisor_P1.where(bears_P1, divisor_P1 * 0 + 1) * bears_P1
        return advantage_PG

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        """The clipped surrogate (Eq. 2-3) as a loss to be minimised, one value a token, and no hinge."""
        ratio_BT = (batch.logp_BT - batch.logp_old_BT).exp()
        clipped_BT = ratio_BT.clamp(1 - self.clip_low, 1 + self.clip_high)
        advantage_B1 = batch.advantage_B.to(ratio_BT.dtype).unsqueeze(-1)
        policy_BT = -(ratio_BT * advantage_B1).minimum(clipped_BT * advantage_B1)
        length_B = batch.mask_BT.sum(-1).to(ratio_BT.dtype)
        if self.aggregation == "token-mean":
            weight_B = length_B * 0 + 1 / batch.total.tokens
        else:
            weight_B = 1 / (batch.total.sequences * length_B)
        none_BT, none_B = policy_BT.detach() * 0, weight_B * 0
        return TokenLoss(policy_BT, weight_B, none_BT, none_B)
