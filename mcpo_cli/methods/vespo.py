"""VESPO (arXiv 2602.10693): a smooth weight of the whole sequence's ratio instead of clipping.

w = the product of a sequence's token ratios, log w within [log 1e-8, 20]; weight phi = exp(lambda + k log w - lambda
w); loss -sg(phi) A log pi of each token (BT), mean over tokens. A as in `grpo`. phi is 1 at w = 1 and largest at w =
k/lambda.

Defaults: (k, lambda) = (2, 3) where A >= 0, else (3, 2) (TRL's). The value is no surrogate of the reward. Edge cases:
far from the rollout policy phi is 0 on both sides. Checked: loss and gradient equal TRL 1.16's lines
(`loss_type=vespo`, executed); verl 0.9.1 has none. The paper's own code was not read.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mcpo_cli.methods.base import TokenBatch
from mcpo_cli.methods.group_relative import Aggregation, Normalized

if TYPE_CHECKING:
    from torch import Tensor

LOG_RATIO_RANGE = (math.log(1e-8), 20.0)
"""Where log w is cut: beyond it exp(log w) overflows, and phi is 0."""


@dataclass(frozen=True)
class Vespo(Normalized):
    """Variational Sequence-level Soft Policy Optimization."""

    name: ClassVar[str] = "vespo"
    stop_gradients: ClassVar[bool] = True

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in TRL."""
    k_positive: float = dataclasses.field(default=2.0, metadata={"ge": 0.0})
    """k where A >= 0: how fast the weight falls below w = 1."""
    lambda_positive: float = dataclasses.field(default=3.0, metadata={"gt": 0.0})
    """lambda where A >= 0: how fast the weight falls above w = 1."""
    k_negative: float = dataclasses.field(default=3.0, metadata={"ge": 0.0})
    """k where A < 0."""
    lambda_negative: float = dataclasses.field(default=2.0, metadata={"gt": 0.0})
    """lambda where A < 0."""

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        log_w_B1 = (batch.log_ratio_BT.detach() * batch.mask_BT).sum(-1, keepdim=True).clamp(*LOG_RATIO_RANGE)
        up_B1, down_B1 = (
            (rate + k * log_w_B1 - rate * log_w_B1.exp()).exp()
            for k, rate in ((self.k_positive, self.lambda_positive), (self.k_negative, self.lambda_negative))
        )
        return -up_B1.where(batch.A_BT >= 0, down_B1) * batch.A_BT * batch.logp_BT
