"""Discriminative objectives: DisCO and DRPO, under a constraint on the drift, and REAL, which needs none."""

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
    """DisCO (arXiv 2505.12366): raise correct answers above the hard incorrect ones, under a constraint on the drift.

    Discriminative Constrained Optimization. Groups with correct and incorrect answers: J_i = mean over right of [s -
    tau log mean over wrong of exp(s/tau)], with s the mean log-probability of a response (`score=logl`) or its mean
    ratio (`score=lratio`). The loss is -(sum of J_i)/P + beta/2 [K - delta]^2 where K > delta; P counts all prompts of
    the mini-batch, dead ones too, and K is the mean of log pi_old - log pi over all its tokens. Written as linear terms
    whose coefficients `prepare` takes at the current policy (BT): a correct rollout weighs 1/#right, an incorrect one
    its share of the softmax of s/tau, the drift beta (K - delta). Value and gradient equal the objective's.

    Defaults: tau 10 (of logl; lratio has 1), delta 1e-4, beta 1e3 (released code; the paper's runs sample at
    temperature .6). `negatives=mean` is DisCO-b, tau = infinity. Edge cases: dead groups have J = 0 and a gradient
    through K alone. Reduction: lratio with `negatives=mean` and without constraint is `dr_grpo`'s advantage over p(1 -
    p), unclipped; W = 1 for 0 < p < 1.

    Disagreements: the code's value is not the objective's (correct gradient, off by a constant), and its penalty is
    beta [K - delta]+ K with the bracket detached, which has the gradient of beta/2 [.]^2; the paper has beta [.]^2. We
    follow the code's gradient. The code computes K and P for each micro-batch, we for the mini-batch. Its L-ratio
    branch calls a function with an argument too many, so the published L-ratio variant cannot run as released.
    Checked: gradients equal the authors' function (executed). Neither verl nor TRL has it.
    """

    name: ClassVar[str] = "disco"
    uneven_groups: ClassVar[bool] = True
    token_columns: ClassVar[tuple[str, ...]] = ("coefficient", "offset", "excess")
    prepares: ClassVar[bool] = True
    stop_gradients: ClassVar[bool] = True

    aggregation: Literal["seq-mean-token-mean"] = "seq-mean-token-mean"
    """The mean over sequences: a score is a mean over tokens."""
    score: Literal["logl", "lratio"] = "logl"
    """s of a response: mean log-probability of its tokens, or their mean ratio."""
    negatives: Literal["log-mean-exp", "mean"] = "log-mean-exp"
    """How incorrect scores enter: the hard ones most (DisCO), or all alike (DisCO-b)."""
    tau: float = dataclasses.field(default=10.0, metadata={"gt": 0.0})
    """Temperature of the log-mean-exp; the paper has 10 with logl and 1 with lratio."""
    beta: float = dataclasses.field(default=1000.0, metadata={"ge": 0.0})
    """Weight of the constraint."""
    delta: float = dataclasses.field(default=1e-4, metadata={"ge": 0.0})
    """Drift K, nats, up to which the constraint is silent."""

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """1 for 0 < p < 1 if all incorrect answers count alike and s is the ratio; otherwise NaN."""
        is_plain = self.negatives == "mean" and self.score == "lratio"
        return ((p > 0) & (p < 1)) * 1.0 + p * (0 if is_plain else math.nan)

    @property
    def screens(self) -> bool:
        return self.beta > 0

    def right_share(self, step: Step) -> Tensor:
        """Weights PG of correct rollouts, of sum 1 in a group that has any: all alike."""
        right_PG = step.correct_PG.double()
        return right_PG / right_PG.sum(-1, keepdim=True).clamp(min=1)

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """G times the weight of a correct rollout, -G/#wrong for an incorrect one, 0 in dead groups; all may train."""
        right_PG, p_P1 = step.correct_PG.bool(), step.p_P[:, None]
        wrong_PG = 1 / (1 - p_P1).clamp(min=1 / right_PG.shape[-1]) * ~right_PG
        advantage_PG = (self.right_share(step) * right_PG.shape[-1] - wrong_PG) * (p_P1 > 0) * (p_P1 < 1)
        has_gradient_PG = (advantage_PG != 0) | (self.beta > 0)
        return Signals(advantage_PG, has_gradient_PG), state

    def prepare(self, batch: TokenBatch, seed: int) -> Mapping[str, Tensor]:
        """Coefficient of each score, the offset that gives the linear form J's value, and K - delta if positive."""
        A_B, one_BT = batch.A_BT[:, 0], batch.logp_BT.detach() * 0 + 1
        coefficient_B, offset_B = A_B, A_B * 0
        if self.negatives == "log-mean-exp":
            tau, wrong_B, place_B = self.tau, A_B < 0, batch.group_B.unique(return_inverse=True)[1]
            s_B = (batch.mean_B(self._score(batch)) / tau).detach()
            low_P = s_B.new_full((len(A_B),), -math.inf)
            top_B = low_P.scatter_reduce(0, place_B, s_B.where(wrong_B, -math.inf), "amax")[place_B].where(wrong_B, s_B)
            # -A is G/#wrong: sums of A exp(s) over a group are G times the mean over its incorrect rollouts.
            exp_B = (s_B - top_B).exp() * -A_B * wrong_B
            sum_B = (s_B * 0).index_add(0, place_B, exp_B)[place_B].where(wrong_B, 1.0)
            size_B = (s_B * 0).index_add(0, place_B, -A_B * wrong_B)[place_B].where(wrong_B, 1.0)
            coefficient_B = A_B.where(~wrong_B, -size_B * exp_B / sum_B)
            offset_B = (tau * ((sum_B / size_B).log() + top_B - s_B)).where(wrong_B, 0.0)
        drift = -(batch.log_ratio_BT.detach() * batch.mask_BT).sum() / batch.total.tokens
        excess = (drift - self.delta).clamp(min=0)
        columns = {"coefficient": coefficient_B[:, None], "offset": offset_B[:, None], "excess": excess}
        return {name: column * one_BT for name, column in columns.items()}

    def has_gradient(self, batch: TokenBatch) -> Tensor:
        """Sequences of live groups, and all sequences where the constraint acts."""
        return super().has_gradient(batch) | (batch.columns["excess"] > 0).any(-1)

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


@dataclass(frozen=True)
class Drpo(Disco):
    """DRPO (arXiv 2510.04474): DisCO with correct answers weighted by brevity.

    Decoupled Reward Policy Optimization. As `disco` with `score=logl`, but the correct rollouts of a group weigh in
    proportion to exp((1 - |y|/L_max)/brevity), L_max the longest response that is allowed. Defaults: brevity .1
    (released code), tau 10 and the constraint as in `disco`. Edge cases: `disco`'s. Where responses are much shorter
    than L_max, or L_max is short, .1 nearly selects the shortest correct answer: raise it.

    Reduction: brevity to infinity is `disco`. Checked: the weights equal the authors' function (executed). Neither
    verl nor TRL has it.
    """

    name: ClassVar[str] = "drpo"

    score: Literal["logl"] = "logl"
    """s of a response: the mean log-probability of its tokens."""
    brevity: float = dataclasses.field(default=0.1, metadata={"gt": 0.0})
    """Temperature of the preference for short correct answers, shares of L_max."""

    def right_share(self, step: Step) -> Tensor:
        """A softmax of brevity over the correct rollouts of each group."""
        short_PG = -step.length_PG.double() / (step.max_response * self.brevity)
        return short_PG.where(step.correct_PG.bool(), -1e9).softmax(-1) * step.correct_PG


@dataclass(frozen=True)
class Real(PolicyGradient):
    """REAL (arXiv 2602.05630): the rollouts of a group are classified as correct or not by how their likelihood moves.

    Rewards as Labels. s = mean over tokens of log pi - log pi_old of a response. Loss of a group with correct and
    incorrect answers: log(1 + sum over right of exp(-s/tau)) + log(1 + sum over wrong of exp(s/tau)), mean over all
    prompts. Written as linear terms whose coefficients `prepare` takes at the current policy (BT); value and gradient
    equal the objective's. The advantage is minus G times the coefficient at the rollout policy: G/(tau (1 +
    #right)) for a correct rollout, -G/(tau (1 + #wrong)) for an incorrect one.

    Defaults: tau .5 (ms-swift's). Edge cases: groups of one outcome have no loss, and count in the mean. Binary rewards
    only; shaped ones are refused. W(p) at the rollout policy is near 1/tau for every p of mixed groups when G is
    large. Checked: loss and gradient equal ms-swift's lines, rewritten in the test; the paper was not read. Neither
    verl nor TRL has it.
    """

    name: ClassVar[str] = "real"
    uneven_groups: ClassVar[bool] = True
    token_columns: ClassVar[tuple[str, ...]] = ("coefficient", "offset")
    prepares: ClassVar[bool] = True
    binary_rewards: ClassVar[bool] = True

    aggregation: Literal["seq-mean-token-mean"] = "seq-mean-token-mean"
    """The mean over sequences: a score is a mean over tokens."""
    tau: float = dataclasses.field(default=0.5, metadata={"gt": 0.0})
    """Temperature of the scores; lower makes the boundary between right and wrong sharper."""

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """p(1 - p) (1/(p + 1/G) + 1/(1 - p + 1/G)) / tau for 0 < p < 1, at the rollout policy."""
        tiny = 1 / rollouts + (p <= 0) + (p >= 1)
        return p * (1 - p) * (1 / (p + tiny) + 1 / (1 - p + tiny)) / self.tau

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        right_PG, G = step.correct_PG.bool(), step.correct_PG.shape[-1]
        number_P1 = right_PG.sum(-1, keepdim=True)
        mixed_P1 = (number_P1 > 0) & (number_P1 < G)
        size_PG = G / (self.tau * (1 + number_P1.where(right_PG, G - number_P1).double()))
        return Signals.of(size_PG * (2 * right_PG.double() - 1) * mixed_P1), state

    def prepare(self, batch: TokenBatch, seed: int) -> Mapping[str, Tensor]:
        """The loss's gradient with respect to each rollout's s, and the offset that gives the linear form its value."""
        A_B, one_BT = batch.A_BT[:, 0], batch.logp_BT.detach() * 0 + 1
        s_B = batch.mean_B(batch.log_ratio_BT).detach()
        # A side is the rollouts of one group with one label.
        side_B = 2 * batch.group_B.unique(return_inverse=True)[1] + (A_B > 0)
        sides_S = s_B.new_zeros(2 * len(s_B))
        exp_B = (-s_B / self.tau * A_B.sign()).exp() * (A_B != 0)
        sum_B, number_B = (sides_S.index_add(0, side_B, x_B)[side_B] for x_B in (exp_B, (A_B != 0).to(s_B.dtype)))
        coefficient_B = -A_B * (1 + number_B) * exp_B / (1 + sum_B)
        # A side's part of the loss, divided equally among its rollouts.
        value_B = A_B.abs() * self.tau * (1 + number_B) * sum_B.log1p() / number_B.clamp(min=1)
        columns = {"coefficient": coefficient_B, "offset": value_B - coefficient_B * s_B}
        return {name: column_B[:, None] * one_BT for name, column_B in columns.items()}

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        return batch.columns["coefficient"] * batch.log_ratio_BT + batch.columns["offset"]
