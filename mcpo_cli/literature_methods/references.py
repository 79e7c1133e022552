"""A penalty on the divergence from a reference policy, which any group-relative method can be combined with."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import Need, Report, Signals, State, Step, Term, TokenBatch, TokenLoss
from mcpo_cli.methods.group_relative import Clipped, GroupRelative, Normalized

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ReferenceKl(GroupRelative):
    """A loss term beta KL(pi || pi_ref), estimated from the tokens drawn; it comes first among a method's bases."""

    kl_beta: float = dataclasses.field(default=0.001, metadata={"gt": 0.0})
    """Weight of the penalty."""
    kl_estimator: Literal["k1", "k2", "k3", "unbiased"] = "k3"
    """With x = log pi_ref - log pi of a token: -x, x^2/2, e^x - x - 1, or the last times the ratio (V3.2)."""
    reference_every: int = dataclasses.field(default=0, metadata={"ge": 0})
    """Global steps after which the reference becomes the policy of then; 0 keeps the base policy."""
    without_advantage: Literal["penalised", "free"] = "penalised"
    """Whether the penalty acts on rollouts without an advantage, as of groups whose rewards are all equal."""

    @property
    def needs(self) -> frozenset[Need]:
        return super().needs | {"reference_policy"}

    def moves_reference(self, step: int) -> bool:
        return bool(self.reference_every) and step > 1 and (step - 1) % self.reference_every == 0

    def penalised(self, batch: TokenBatch) -> Tensor:
        """Sequences B on which the penalty acts."""
        return batch.has_advantage_B | (self.without_advantage == "penalised")

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """Every rollout on which the penalty acts has a gradient."""
        signals, state = super().signals(step, state)
        is_penalised = self.without_advantage == "penalised"
        return dataclasses.replace(signals, has_gradient_PG=signals.has_gradient_PG | is_penalised), state

    def has_gradient(self, batch: TokenBatch) -> Tensor:
        return self.penalised(batch)

    def kl(self, batch: TokenBatch) -> Tensor:
        """The estimate for each token, BT."""
        assert batch.logp_reference_BT is not None
        x_BT = batch.logp_reference_BT - batch.logp_BT
        if self.kl_estimator == "k1":
            return -x_BT
        if self.kl_estimator == "k2":
            return x_BT**2 / 2
        k3_BT = x_BT.expm1() - x_BT
        return k3_BT if self.kl_estimator == "k3" else batch.log_ratio_BT.exp() * k3_BT

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        """The terms of the method that it is combined with, and the term `kl`."""
        weight_B = self.weight(batch) * self.penalised(batch)
        return TokenLoss((*super().token_loss(batch).terms, Term("kl", self.kl_beta * self.kl(batch), weight_B)))

    def report(self, batch: TokenBatch) -> Report:
        """`kl/reference`: the mean estimate; `kl/without_advantage`: the share of tokens that the penalty alone pulls.

        Both over the tokens that the penalty acts on.
        """
        active_BT = batch.mask_BT & self.penalised(batch)[:, None]
        alone_BT = active_BT & ~batch.has_advantage_B[:, None]
        sums = {"kl/reference": self.kl(batch) * active_BT, "kl/without_advantage": alone_BT}
        means = {name: (value_BT.sum(), active_BT.sum()) for name, value_BT in sums.items()}
        return Report({**super().report(batch).sums, **means})


@dataclass(frozen=True)
class GrpoKl(ReferenceKl, Clipped, Normalized):
    """GRPO with its KL term (arXiv 2402.03300): a penalty on the divergence from a reference policy, in the loss.

    Loss of `grpo` plus beta times an estimate of KL(pi || pi_ref) for each token, under the same aggregation. `grpo`
    and the methods of this project have none, as the MCPO paper writes them.

    Defaults: beta .001 and k3 (verl's `low_var_kl`; DeepSeek-R1's beta; GRPO's paper has .04); the reference is the
    base policy. At the rollout policy, k1 in a loss has a gradient of 0 on average, whatever the divergence, and k2 has
    the gradient of the KL. `unbiased` (arXiv 2512.02556) is k3 times the ratio, which is differentiated, too; it has
    the gradient of the KL also after the policy has moved. Reduction: beta to 0 is `grpo`.

    Groups whose rewards are all equal get the gradient of the penalty, as in verl and TRL; a run warns where it is more
    than half of what is trained (`kl/without_advantage`). `without_advantage=free` leaves them out.

    Disagreement: verl and ROLL clip x to [-20, 20] and k3 to [-10, 10], TRL and we do not. TRL mixes the weights of the
    policy into the reference when it moves (`ref_model_mixup_alpha`); here it becomes the policy. Checked: loss and
    gradient equal TRL 1.16's lines for k3 and `unbiased`, and the estimates verl 0.9.1's `kl_penalty` for k1, k2 and
    k3, all executed. A penalty in the reward is left out.
    """

    name: ClassVar[str] = "grpo_kl"
