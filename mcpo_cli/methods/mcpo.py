"""MCPO (arXiv 2604.16972): reweighted advantages (Eq. 12-14) and hinge-KL on mastered prompts (Eq. 7-11)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import Floats, Method, TokenBatch, TokenLoss

if TYPE_CHECKING:
    from torch import Tensor


def hinge_kl(d: Tensor, delta: float) -> Tensor:
    """phi(d) of Eq. 10, elementwise: 0 within [-delta, delta], k3(d) - k3(+-delta) beyond it.

    Args:
        d: log pi_theta - log pi_old of a token (Eq. 7), any shape. Its gradient is e^d - 1 outside the
            budget and 0 inside.
        delta: drift budget in nats, >= 0.
    """
    # expm1 keeps k3 exact for the small d this penalty is about: e^d - d - 1 cancels in float32.
    k3 = d.expm1() - d
    edge = (d * 0 + (math.expm1(delta) - delta)).where(d > 0, d * 0 + (math.expm1(-delta) + delta))
    return (k3 - edge).where(d.abs() > delta, d * 0)


@dataclass(frozen=True)
class Mcpo(Method):
    """Mastery-Consolidated Policy Optimization. Its ablations are configurations of it, not copies.

    reweight: divide the advantage by scale(p) (Eq. 13); False is the ablation "w/o ReWeight".
    hinge: penalise drift on mastered prompts; False is the ablation "w/o Hinge-KL".
    beta: weight of the penalty (Eq. 15). delta: drift budget (Eq. 10), in nats.
    anchor: pi_old of Eq. 7: the rollout policy, or the policy before the last optimizer step.
    normalize: the expectation over mastered prompts (Eq. 11) divides by the mastered sequences of the
    mini-batch, or by all of them.
    """

    name: ClassVar[str] = "mcpo"

    clip_high: float = dataclasses.field(default=0.28, metadata={"ge": 0.0})
    reweight: bool = True
    hinge: bool = True
    beta: float = dataclasses.field(default=1.0, metadata={"ge": 0.0})
    delta: float = dataclasses.field(default=0.01, metadata={"ge": 0.0})
    anchor: Literal["rollout", "previous_step"] = "rollout"
    normalize: Literal["mastered", "all"] = "mastered"

    @property
    def label(self) -> str:
        without = [name for name in ("hinge", "reweight") if not getattr(self, name)]
        return "-".join([self.name, *(f"wo-{name}" for name in without)])

    @property
    def anchors_mastered(self) -> bool:
        return self.hinge and self.beta > 0

    @property
    def needs_anchor(self) -> bool:
        return self.anchors_mastered and self.anchor == "previous_step"

    @property
    def drift_budget(self) -> float:
        return self.delta

    def scale(self, p: Floats) -> Floats:
        """Eq. 13: 1 for p <= 0.5, else 2 sqrt(p(1 - p))."""
        if not self.reweight:
            return super().scale(p)
        return 1 + (p > 0.5) * (2 * (p * (1 - p)) ** 0.5 - 1)

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        loss = super().token_loss(batch)
        if not self.anchors_mastered:
            return loss
        length_B = batch.mask_BT.sum(-1).to(loss.policy_BT.dtype)
        sequences = batch.total.mastered if self.normalize == "mastered" else batch.total.sequences
        return dataclasses.replace(
            loss,
            hinge_BT=hinge_kl(batch.logp_BT - batch.logp_anchor_BT, self.delta),
            hinge_weight_B=self.beta * batch.mastered_B / (max(sequences, 1) * length_B),
        )
