"""DisCO (arXiv 2505.12366): raise right answers above the hard wrong ones, under a constraint on the drift.

Groups with right and wrong answers: J_i = mean over right of [s - tau log mean over wrong of exp(s/tau)], with s the
mean log-probability of a response (`score=logl`) or its mean ratio (`score=lratio`). The loss is -(sum of J_i)/P +
beta/2 [K - delta]^2 where K > delta; P counts all prompts of the mini-batch, dead ones too, and K is the mean of log
pi_old - log pi over all its tokens. Written as linear terms whose coefficients `prepare` takes at the policy of now
(BT): a right rollout weighs 1/#right, a wrong one its share of the softmax of s/tau, the drift beta (K - delta). Value
and gradient are those of the objective.

Defaults: tau 10 (of logl; lratio has 1), delta 1e-4, beta 1e3 (released code; the paper's runs sample at temperature
.6). `negatives=mean` is DisCO-b, tau = infinity. Edge cases: dead groups have J = 0 and bear through K alone.
Reduction: lratio with `negatives=mean` and without constraint is `dr_grpo`'s advantage over p(1 - p), unclipped; W = 1
for 0 < p < 1.

Disagreements: the code's value is not the objective's (right gradient, off by a constant), and its penalty is beta [K
- delta]+ K with the bracket detached, whose gradient is that of beta/2 [.]^2; the paper has beta [.]^2. We follow the
code's gradient. The code computes K and P for each micro-batch, we for the mini-batch. Its L-ratio branch calls a
function with an argument too many, so the published L-ratio variant cannot run as released. Checked: gradients equal
the authors' function (executed). Neither verl nor TRL has it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import Floats, Signals, State, Step, Term, TokenBatch, TokenLoss
from mcpo_cli.methods.group_relative import PolicyGradient

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Disco(PolicyGradient):
    """Discriminative Constrained Optimization."""

    name: ClassVar[str] = "disco"
    token_columns: ClassVar[tuple[str, ...]] = ("coefficient", "offset", "excess")
    prepares: ClassVar[bool] = True
    stop_gradients: ClassVar[bool] = True

    aggregation: Literal["seq-mean-token-mean"] = "seq-mean-token-mean"
    """The mean over sequences: a score is a mean over tokens."""
    score: Literal["logl", "lratio"] = "logl"
    """s of a response: mean log-probability of its tokens, or their mean ratio."""
    negatives: Literal["log-mean-exp", "mean"] = "log-mean-exp"
    """How wrong scores enter: the hard ones most (DisCO), or all alike (DisCO-b)."""
    tau: float = dataclasses.field(default=10.0, metadata={"gt": 0.0})
    """Temperature of the log-mean-exp; the paper has 10 with logl and 1 with lratio."""
    beta: float = dataclasses.field(default=1000.0, metadata={"ge": 0.0})
    """Weight of the constraint."""
    delta: float = dataclasses.field(default=1e-4, metadata={"ge": 0.0})
    """Drift K, nats, up to which the constraint is silent."""

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """1 for 0 < p < 1 where all wrong answers count alike and s is the ratio; no curve else."""
        plain = self.negatives == "mean" and self.score == "lratio"
        return ((p > 0) & (p < 1)) * 1.0 + p * (0 if plain else math.nan)

    @property
    def screens(self) -> bool:
        return self.beta > 0

    def right_share(self, step: Step) -> Tensor:
        """Weights PG of right rollouts, of sum 1 in a group that has any: all alike."""
        right_PG = step.correct_PG.double()
        return right_PG / right_PG.sum(-1, keepdim=True).clamp(min=1)

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """G times the weight of a right rollout, -G/#wrong for a wrong one, 0 in dead groups; all may bear."""
        right_PG, p_P1 = step.correct_PG.bool(), step.p_P[:, None]
        wrong_PG = 1 / (1 - p_P1).clamp(min=1 / right_PG.shape[-1]) * ~right_PG
        advantage_PG = (self.right_share(step) * right_PG.shape[-1] - wrong_PG) * (p_P1 > 0) * (p_P1 < 1)
        bears_PG = (advantage_PG != 0) | (self.beta > 0)
        return Signals(advantage_PG, bears_PG), state

    def prepare(self, scores: Mapping[str, Tensor], batch: TokenBatch, seed: int) -> Mapping[str, Tensor]:
        """Coefficient of each score, what makes the linear form's value J's, and K - delta where it is above 0."""
        A_B, one_BT = batch.A_BT[:, 0], batch.logp_BT.detach() * 0 + 1
        coefficient_B, offset_B = A_B, A_B * 0
        if self.negatives == "log-mean-exp":
            tau, wrong_B, place_B = self.tau, A_B < 0, batch.group_B.unique(return_inverse=True)[1]
            s_B = (batch.mean_B(self._score(batch)) / tau).detach()
            low_P = s_B.new_full((len(A_B),), -math.inf)
            top_B = low_P.scatter_reduce(0, place_B, s_B.where(wrong_B, -math.inf), "amax")[place_B].where(wrong_B, s_B)
            # -A is G/#wrong: sums of A exp(s) over a group are G times the mean over its wrong rollouts.
            exp_B = (s_B - top_B).exp() * -A_B * wrong_B
            sum_B = (s_B * 0).index_add(0, place_B, exp_B)[place_B].where(wrong_B, 1.0)
            size_B = (s_B * 0).index_add(0, place_B, -A_B * wrong_B)[place_B].where(wrong_B, 1.0)
            coefficient_B = A_B.where(~wrong_B, -size_B * exp_B / sum_B)
            offset_B = (tau * ((sum_B / size_B).log() + top_B - s_B)).where(wrong_B, 0.0)
        drift = -(batch.log_ratio_BT.detach() * batch.mask_BT).sum() / batch.total.tokens
        excess = (drift - self.delta).clamp(min=0)
        columns = {"coefficient": coefficient_B[:, None], "offset": offset_B[:, None], "excess": excess}
        return {name: column * one_BT for name, column in columns.items()}

    def bears(self, batch: TokenBatch) -> Tensor:
        """Those of live groups, and all of them where the constraint acts."""
        return super().bears(batch) | (batch.columns["excess"] > 0).any(-1)

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        return -batch.columns["coefficient"] * (self._score(batch) + batch.columns["offset"])

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        """The term `policy`, and `constraint`: beta [K - delta]+ (K - delta - [K - delta]+ / 2), linear in K."""
        excess_BT = batch.columns["excess"]
        value_BT = self.beta * excess_BT * (-batch.log_ratio_BT - self.delta - excess_BT / 2)
        constraint = Term("constraint", value_BT, batch.length_B * 0 + 1 / batch.total.tokens)
        return TokenLoss((*super().token_loss(batch).terms, constraint))

    def _score(self, batch: TokenBatch) -> Tensor:
        """score_BT, whose mean over a sequence's tokens is s."""
        return batch.logp_BT if self.score == "logl" else batch.log_ratio_BT.exp()
