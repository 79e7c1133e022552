"""SAPO, Soft Adaptive Policy Optimization (arXiv 2511.20347): a sigmoid gate on the ratio instead of clipping.

Loss -(4/tau) sigmoid(tau (r - 1)) A of each token (BT), with tau = tau_positive where A > 0, else tau_negative; A as
in `grpo`. Its gradient, -4 s(1 - s) r A with s the gate, is -A at r = 1 and fades on both sides of it.

Defaults: tau 1.0 and 1.05 (the paper's), mean over sequences of means over tokens. Edge cases: A = 0 gives 0. The
value at r = 1 is -2A/tau and no surrogate of the reward. No disagreement: loss and gradient equal verl 0.9.1's
function and TRL 1.16's lines. The MCPO paper cites another SAPO (self-adaptive process optimization) where it
describes this one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mcpo_cli.methods.base import TokenBatch
from mcpo_cli.methods.group_relative import Normalized

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Sapo(Normalized):
    """Soft Adaptive Policy Optimization."""

    name: ClassVar[str] = "sapo"

    tau_positive: float = dataclasses.field(default=1.0, metadata={"gt": 0.0})
    """Temperature of the gate for tokens with A > 0."""
    tau_negative: float = dataclasses.field(default=1.05, metadata={"gt": 0.0})
    """Temperature of the gate for the others; larger fades sooner."""

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        A_BT = batch.A_BT
        tau_BT = (A_BT * 0 + self.tau_positive).where(A_BT > 0, A_BT * 0 + self.tau_negative)
        return -4 / tau_BT * (tau_BT * batch.log_ratio_BT.expm1()).sigmoid() * A_BT
