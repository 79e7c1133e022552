"""Methods that treat the probability ratio of a token or a response in another way than PPO's clipping."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from mcpo_cli.methods.base import Floats, Method, Report, Signals, State, Step, TokenBatch
from mcpo_cli.methods.group_relative import Aggregation, Clipped, GroupRelative, Normalized, PolicyGradient
from mcpo_cli.methods.grpo import Gspo

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Cispo(Normalized):
    """CISPO (arXiv 2506.13585): the clipped ratio is a constant weight of log pi, so no token loses its gradient.

    Clipped IS-weight Policy Optimization. loss = -sg(clip(r, ratio_min, ratio_max)) A log pi, mean over tokens (Eq.
    4-5). MiniMax sets no lower bound and does not publish its upper one; 5 is ScaleRL's. TRL's `epsilon_high` is the
    bound itself, verl's is 1 + epsilon on both sides. Its value is no surrogate of the reward: loss values of
    different methods do not compare.
    """

    name: ClassVar[str] = "cispo"
    stop_gradients: ClassVar[bool] = True

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in the paper."""
    ratio_min: float = dataclasses.field(default=0.0, metadata={"ge": 0.0, "le": 1.0})
    """The smallest weight of a token; MiniMax sets no lower bound."""
    ratio_max: float = dataclasses.field(default=5.0, metadata={"ge": 1.0})
    """The largest weight of a token: the bound itself, as in TRL, not 1 + epsilon."""

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        return -batch.log_ratio_BT.exp().clamp(self.ratio_min, self.ratio_max).detach() * batch.A_BT * batch.logp_BT

    def report(self, batch: TokenBatch) -> Report:
        """`train/clip_high`, `train/clip_low`: shares of the tokens with an advantage whose weight is cut."""
        active_BT, ratio_BT = batch.active_BT, batch.log_ratio_BT.exp()
        cuts = {"train/clip_high": ratio_BT > self.ratio_max, "train/clip_low": ratio_BT < self.ratio_min}
        shares = {name: ((cut_BT & active_BT).sum(), active_BT.sum()) for name, cut_BT in cuts.items()}
        return Report({**shares, **super().report(batch).sums})


@dataclass(frozen=True)
class Gmpo(Clipped, Normalized):
    """GMPO (arXiv 2507.20673): the geometric mean of token ratios, each clipped in log space before the mean.

    Geometric-Mean Policy Optimization. d' = min(d, clip_high) where A > 0, max(d, -clip_low) where A < 0; loss -A
    exp(mean_t d'), the same for the tokens of a sequence (BT), mean over sequences. A as in `grpo`.

    Defaults: .4/.4, so that ratios stay in (e^-.4, e^.4) (the paper's choice). `clip_low` and `clip_high` are limits
    of the log ratio here, of the ratio in other methods. Edge cases: A = 0 gives 0; the released code takes its sign
    as positive, which is the same. Reduction: without clipping it is `gspo` without clipping.

    Disagreement: verl 0.9.1 (`geo_mean`) takes a mean over the micro-batch, which depends on the split; ours divides
    by the sequences of the mini-batch. Checked: loss and gradient equal verl's function; TRL's experimental trainer
    was read only.
    """

    name: ClassVar[str] = "gmpo"

    aggregation: Literal["seq-mean-token-mean"] = "seq-mean-token-mean"
    """The mean over sequences, which the geometric mean is one number of."""
    clip_low: float = dataclasses.field(default=0.4, metadata={"ge": 0.0})
    """The log ratio of a token is clipped below at -clip_low where A < 0."""
    clip_high: float = dataclasses.field(default=0.4, metadata={"ge": 0.0})
    """The log ratio of a token is clipped above at clip_high where A > 0."""

    def bounds(self, batch: TokenBatch) -> tuple[Any, Any]:
        return math.exp(-self.clip_low), math.exp(self.clip_high)

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        d_BT, A_BT = batch.log_ratio_BT, batch.A_BT
        clipped_BT = d_BT.clamp(max=self.clip_high).where(A_BT > 0, d_BT.clamp(min=-self.clip_low))
        return -A_BT * batch.mean_B(clipped_BT).exp()[:, None].expand_as(d_BT)


@dataclass(frozen=True)
class Sapo(Normalized):
    """SAPO, Soft Adaptive Policy Optimization (arXiv 2511.20347): a sigmoid gate on the ratio instead of clipping.

    Loss -(4/tau) sigmoid(tau (r - 1)) A of each token (BT), with tau = tau_positive where A > 0, else tau_negative; A
    as in `grpo`. Its gradient, -4 s(1 - s) r A with s the gate, is -A at r = 1 and fades on both sides of it.

    Defaults: tau 1.0 and 1.05 (the paper's), mean over sequences of means over tokens. Edge cases: A = 0 gives 0. The
    value at r = 1 is -2A/tau and no surrogate of the reward. No disagreement: loss and gradient equal verl 0.9.1's
    function and TRL 1.16's lines. The MCPO paper cites another SAPO (self-adaptive process optimization) where it
    describes this one.
    """

    name: ClassVar[str] = "sapo"

    tau_positive: float = dataclasses.field(default=1.0, metadata={"gt": 0.0})
    """Temperature of the gate for tokens with A > 0."""
    tau_negative: float = dataclasses.field(default=1.05, metadata={"gt": 0.0})
    """Temperature of the gate for the others; larger fades sooner."""

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        A_BT = batch.A_BT
        tau_BT = (A_BT * 0 + self.tau_positive).where(A_BT > 0, A_BT * 0 + self.tau_negative)
        return -4 / tau_BT * (tau_BT * batch.log_ratio_BT.expm1()).sigmoid() * A_BT


LOG_RATIO_RANGE = (math.log(1e-8), 20.0)
"""Range to which log w is clamped: beyond it exp(log w) overflows, and phi is 0."""


@dataclass(frozen=True)
class Vespo(Normalized):
    """VESPO (arXiv 2602.10693): a smooth weight of the whole sequence's ratio instead of clipping.

    Variational Sequence-level Soft Policy Optimization. w = the product of a sequence's token ratios, log w within
    [log 1e-8, 20]; weight phi = exp(lambda + k log w - lambda w); loss -sg(phi) A log pi of each token (BT), mean
    over tokens. A as in `grpo`. phi is 1 at w = 1 and largest at w = k/lambda.

    Defaults: (k, lambda) = (2, 3) where A >= 0, else (3, 2) (TRL's). The value is no surrogate of the reward. Edge
    cases: far from the rollout policy phi is 0 on both sides. Checked: loss and gradient equal TRL 1.16's lines
    (`loss_type=vespo`, executed); verl 0.9.1 has none. The paper's own code was not read.
    """

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


@dataclass(frozen=True)
class Luspo(Gspo):
    """LUSPO (arXiv 2602.05261): GSPO with each sequence weighted by its length.

    Length-Unbiased Sequence Policy Optimization. Loss -|y| min(s A, clip(s) A) of a sequence with GSPO's ratio s,
    mean over sequences: GSPO's token values, summed over tokens instead of averaged. Defaults, edge cases: GSPO's.
    Checked: loss and gradient equal TRL 1.16's lines (`loss_type=luspo`, executed); verl 0.9.1 has none. The paper's
    own code was not read.
    """

    name: ClassVar[str] = "luspo"

    def weight(self, batch: TokenBatch) -> Tensor:
        """GSPO's weight times |y|: 1/B for each token."""
        return super().weight(batch) * batch.length_B


@dataclass(frozen=True)
class Gpg(GroupRelative):
    """GPG (arXiv 2504.02546): REINFORCE on centred rewards, rescaled for groups without a signal; no ratio.

    Group Policy Gradient. A = alpha (r - mean r), alpha = rollouts / rollouts of groups whose rewards differ, over
    the global step (1 where there is none); A_PG. Loss -log pi A, mean over tokens.

    Defaults: mean over tokens. Edge cases: groups whose rewards are equal have A = 0. Without a ratio the gradient is
    biased from the second mini-batch of a step on.

    Disagreement: verl 0.9.1 counts rewards that are not 0 instead of rollouts of live groups, so its alpha is another
    number wherever a group is all correct, or a live one has an incorrect answer. Default `count=live`, the paper's;
    `count=nonzero` is verl's. W(p) depends on the batch: no curve. Checked: advantage (`count=nonzero`) and loss
    equal verl's functions.
    """

    name: ClassVar[str] = "gpg"
    uneven_groups: ClassVar[bool] = False

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in the paper."""
    count: Literal["live", "nonzero"] = "live"
    """The divisor of alpha: rollouts of groups whose rewards differ (paper), or rewards that are not 0 (verl)."""

    query_weight = Method.query_weight

    def advantages(self, reward_PG: Tensor, correct_PG: Tensor) -> Tensor:
        """alpha (r - mean r); the groups must be one whole step."""
        advantage_PG = super().advantages(reward_PG, correct_PG)
        counted_PG = (advantage_PG != 0).any(-1, keepdim=True).expand_as(advantage_PG)
        if self.count == "nonzero":
            counted_PG = reward_PG != 0
        return advantage_PG * (advantage_PG.numel() / counted_PG.sum().clamp(min=1))

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        return -batch.logp_BT * batch.A_BT


@dataclass(frozen=True)
class Topr(PolicyGradient):
    """TOPR (arXiv 2503.14286): correct answers without a ratio, incorrect answers weighted by their ratio, at most 1.

    Tapered Off-Policy REINFORCE. A = 1 - c for correct rollouts, -1 - c for incorrect ones, c = `baseline`; A_PG. Loss
    -A log pi where A > 0, -sg(min(s, 1)) A log pi else, with s the ratio of the whole response, the product of its
    tokens' ratios; summed over tokens, mean over sequences.

    Defaults: c = 0, and the ratio of the response (paper). Edge cases: no group is dead, p = 0 and p = 1 have a
    gradient in full. Binary rewards only; shaped ones are refused. Off-policy the baseline decides how much correct
    and incorrect answers weigh, not only the variance. W(p) = 2 p(1 - p), as a constant of the group drops out of it.

    Disagreement: ROLL (`pg_variant=topr`) has a ratio for each token and takes any advantage; `ratio=token` is its
    ratio. Checked: loss and gradient equal ROLL's lines, rewritten in the test. Neither verl nor TRL has it.
    """

    name: ClassVar[str] = "topr"
    uneven_groups: ClassVar[bool] = True
    stop_gradients: ClassVar[bool] = True
    binary_rewards: ClassVar[bool] = True
    uses_dead_groups: ClassVar[bool] = True

    aggregation: Aggregation = "seq-mean-token-sum"
    """How token losses become one number; log pi of a response is a sum over tokens in the paper."""
    baseline: float = dataclasses.field(default=0.0, metadata={"gt": -1.0, "lt": 1.0})
    """c: what is subtracted from the rewards 1 and -1."""
    ratio: Literal["sequence-sum", "token"] = "sequence-sum"
    """The weight of incorrect answers: the ratio of the response (paper), or of each token (ROLL)."""

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """2 p(1 - p)."""
        return 2 * p * (1 - p)

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        return Signals.of(2 * step.correct_PG.double() - 1 - self.baseline), state

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        log_ratio_BT = batch.log_ratio_BT
        if self.ratio == "sequence-sum":
            log_ratio_BT = (log_ratio_BT * batch.mask_BT).sum(-1, keepdim=True).expand_as(log_ratio_BT)
        weight_BT = (log_ratio_BT * (batch.A_BT < 0)).clamp(max=0).exp()
        return -weight_BT.detach() * batch.A_BT * batch.logp_BT
