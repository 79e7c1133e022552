"""Methods that limit how far one update moves a token, but not by PPO's clipping."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import Report, Signals, State, Step, Term, TokenBatch, TokenLoss
from mcpo_cli.methods.group_relative import Aggregation, Clipped, GroupRelative, Normalized

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DualClip(Clipped, Normalized):
    """Dual clip (arXiv 1912.09729): GRPO whose ratio is bounded above where A < 0, too.

    PPO's min(r A, clip(r) A) has no floor where A < 0 and r is large. Here the loss of such a token is at most -cap A:
    beyond r = cap it has no gradient. A as in `grpo`.

    Defaults: cap 3 (verl's `clip_ratio_c`). Edge cases: where A > 0 nothing changes. Reduction: a large cap is `grpo`.
    TRL's two-sided clip (`delta`, arXiv 2505.07291) is the same loss. No disagreement about the form; ROLL's cap is 1
    + 2 clip. Checked: loss and gradient equal TRL 1.16's lines (`delta`) and verl 0.9.1's function
    (`vanilla`), both executed.
    """

    name: ClassVar[str] = "dual_clip"

    cap: float = dataclasses.field(default=3.0, metadata={"gt": 1.0})
    """The ratio above which a token with A < 0 has no gradient."""

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        loss_BT = super().policy_loss(batch)
        return loss_BT.minimum(-self.cap * batch.A_BT).where(batch.A_BT < 0, loss_BT)

    def report(self, batch: TokenBatch) -> Report:
        """`train/clip_cap`: the share of the tokens with an advantage that the cap takes the gradient from."""
        capped_BT = batch.active_BT & (batch.advantage_BT < 0) & (self.log_ratio(batch).exp() > self.cap)
        return Report({**super().report(batch).sums, "train/clip_cap": (capped_BT.sum(), batch.active_BT.sum())})


@dataclass(frozen=True)
class Fipo(DualClip):
    """FIPO (arXiv 2603.19835): the advantage of a token grows where what comes after it becomes more likely.

    Future-KL Influenced Policy Optimization. F_t = sum over k >= t of gamma^(k - t) d_k, with d = log pi - log pi_old
    and gamma = 2^(-1/half_life), tokens with a ratio above `cap` left out; f = exp(F) cut to [1, 1 + influence], a
    constant; loss f times the loss of `dual_clip`, mean over tokens. A as in `grpo`.

    Defaults: half life 32 tokens, influence .2, upwards only, safety 4 (ms-swift's); cap 10 and clip_high .28 (its
    example, after the official script). Edge cases: where A < 0 and the ratio is above `safety`, f is cut to [.8, 1].
    Reduction: at the rollout policy it is `dual_clip`. Checked: loss and gradient equal ms-swift's lines, rewritten as
    a loop in the test; the paper was not read. Neither verl nor TRL has it.
    """

    name: ClassVar[str] = "fipo"
    stop_gradients: ClassVar[bool] = True

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in ms-swift."""
    clip_high: float = dataclasses.field(default=0.28, metadata={"ge": 0.0})
    """The ratio is clipped above at 1 + clip_high."""
    cap: float = dataclasses.field(default=10.0, metadata={"gt": 1.0})
    """The ratio above which a token with A < 0 has no gradient, and no token counts for those before it."""
    half_life: float = dataclasses.field(default=32.0, metadata={"gt": 0.0})
    """Tokens after which a drift counts half."""
    influence: float = dataclasses.field(default=0.2, metadata={"ge": 0.0, "lt": 1.0})
    """The largest change of an advantage, a share of it."""
    both_ways: bool = False
    """Whether f is cut at 1 - influence below, not at 1: the advantage may shrink, too."""
    safety: float = dataclasses.field(default=4.0, metadata={"gt": 0.0})
    """The ratio above which the advantage of a token with A < 0 does not grow."""

    def future(self, batch: TokenBatch) -> Tensor:
        """F_BT, nats."""
        ratio_BT, index_T = batch.log_ratio_BT.exp(), batch.mask_BT.new_ones(batch.mask_BT.shape[1]).cumsum(0)
        d_BT = batch.log_ratio_BT * (batch.mask_BT & (ratio_BT <= self.cap))
        distance_TT = index_T - index_T[:, None]
        decay_TT = 2 ** (-distance_TT.clamp(min=0).to(d_BT.dtype) / self.half_life) * (distance_TT >= 0)
        future_BT: Tensor = d_BT @ decay_TT.T
        return future_BT

    def influence_weight(self, batch: TokenBatch) -> Tensor:
        """f_BT."""
        low = 1 - self.influence if self.both_ways else 1.0
        f_BT = self.future(batch).exp().clamp(low, 1 + self.influence)
        risky_BT = (batch.A_BT < 0) & (batch.log_ratio_BT.exp() > self.safety)
        return f_BT.clamp(0.8, 1.0).where(risky_BT, f_BT).detach()

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        return super().policy_loss(batch) * self.influence_weight(batch)

    def report(self, batch: TokenBatch) -> Report:
        """`train/influence`: the mean of f over the tokens with an advantage."""
        influence = (self.influence_weight(batch) * batch.active_BT).sum()
        return Report({**super().report(batch).sums, "train/influence": (influence, batch.active_BT.sum())})


@dataclass(frozen=True)
class Dppo(Normalized):
    """DPPO (arXiv 2602.04879): tokens are left out by how far their probability moved, not by its ratio.

    Divergence Proximal Policy Optimization, in its binary form: the token drawn against all others. With q = pi_old and
    p = pi of the token, D is |p - q| (`divergence=tv`) or q log(q/p) + (1 - q) log((1 - q)/(1 - p)) (`kl`). A token is
    left out where A > 0, p > q and D > `limit_high`, or where A <= 0, p < q and D > `limit_low`. Loss -sg(min(r, cap))
    A log pi of the others, mean over tokens. A as in `grpo`.

    Defaults: limits .2 and .2 (verl's and prime-rl's), cap 20 (verl's). Edge cases: (1 - q) and (1 - p) have 1e-8 added
    in the KL, as in verl, which bounds it for a certain token. The value is no surrogate of the reward.

    Disagreement: prime-rl adds a squared log ratio with weight 1e-3, and has no cap; the approximation by the top k
    tokens needs more of the distribution than methods get and is left out. Checked: loss and gradient equal verl
    0.9.1's functions `dppo_tv` and `dppo_kl` (executed). TRL has none.
    """

    name: ClassVar[str] = "dppo"
    stop_gradients: ClassVar[bool] = True

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in verl."""
    divergence: Literal["tv", "kl"] = "tv"
    """What is bounded: total variation, or the KL of the old policy from the new one."""
    limit_low: float = dataclasses.field(default=0.2, metadata={"ge": 0.0})
    """The largest divergence of a token that loses probability."""
    limit_high: float = dataclasses.field(default=0.2, metadata={"ge": 0.0})
    """The largest divergence of a token that gains probability."""
    cap: float = dataclasses.field(default=20.0, metadata={"gt": 1.0})
    """The largest weight of a token, a ratio."""

    def left_out(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """Tokens BT that have moved beyond a limit and that their advantage pushes further: upwards, and downwards."""
        p_BT, q_BT = batch.logp_BT.exp(), batch.logp_old_BT.exp()
        divergence_BT = (p_BT - q_BT).abs()
        if self.divergence == "kl":
            divergence_BT = -q_BT * batch.log_ratio_BT + (1 - q_BT) * ((1 - q_BT + 1e-8) / (1 - p_BT + 1e-8)).log()
        # Rounding may make a probability larger than 1 and the KL NaN: such a token is beyond every limit.
        high_BT = (batch.A_BT > 0) & (p_BT > q_BT) & ~(divergence_BT <= self.limit_high)
        low_BT = (batch.A_BT <= 0) & (p_BT < q_BT) & ~(divergence_BT <= self.limit_low)
        return high_BT, low_BT

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        high_BT, low_BT = self.left_out(batch)
        weight_BT = batch.log_ratio_BT.exp().clamp(max=self.cap) * ~(high_BT | low_BT)
        return -weight_BT.detach() * batch.A_BT * batch.logp_BT

    def report(self, batch: TokenBatch) -> Report:
        """`train/clip_high`, `train/clip_low`: shares of the tokens with an advantage that are left out."""
        high_BT, low_BT = self.left_out(batch)
        active_BT, count = batch.active_BT, batch.active_BT.sum()
        shares = {
            "train/clip_high": ((high_BT & active_BT).sum(), count),
            "train/clip_low": ((low_BT & active_BT).sum(), count),
        }
        return Report({**shares, **super().report(batch).sums})


@dataclass(frozen=True)
class Ipo(Normalized):
    """IPO (prime-rl, no arXiv paper): tokens are left out by how far their probability moved, whatever their advantage.

    INTELLECT Policy Optimization, after prime-rl's docs/ipo.md. With r = pi / pi_old of a token, it is left out where
    |pi - pi_old| > `limit`. Loss -sg(r) A log pi of the others, mean over tokens. A as in `grpo`.

    Defaults: limit .3, no KL (prime-rl's since September 2026). Reduction: at the rollout policy it is `grpo`; where
    each token moved in the direction of its advantage it is `dppo` with one limit and no cap. Disagreement: none known.
    Checked: the loss rewritten as a loop; prime-rl was not executed. Neither verl nor TRL has it.
    """

    name: ClassVar[str] = "ipo"
    stop_gradients: ClassVar[bool] = True

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in prime-rl."""
    limit: float = dataclasses.field(default=0.3, metadata={"ge": 0.0})
    """The largest change of a token's probability."""

    def kept(self, batch: TokenBatch) -> Tensor:
        """Tokens BT within the limit."""
        return (batch.logp_BT.exp() - batch.logp_old_BT.exp()).abs() <= self.limit

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        weight_BT = batch.log_ratio_BT.exp() * self.kept(batch)
        return -weight_BT.detach() * batch.A_BT * batch.logp_BT

    def report(self, batch: TokenBatch) -> Report:
        """`train/left_out`: the share of the tokens with an advantage that are left out."""
        left_out_BT = batch.active_BT & ~self.kept(batch)
        return Report({**super().report(batch).sums, "train/left_out": (left_out_BT.sum(), batch.active_BT.sum())})


@dataclass(frozen=True)
class M2po(Normalized):
    """M2PO (arXiv 2510.01161): the tokens that moved most are left out until the mean squared log ratio is small.

    Second-Moment Trust Policy Optimization. Over the mini-batch's tokens at the current policy, M2 = mean of (log pi -
    log pi_old)^2; the tokens of the largest squares are dropped (column `kept`, BT) until M2 of the rest is below
    `threshold`, but never the last. Loss -r A of those kept, over all tokens of the mini-batch. A as in `grpo`.

    Defaults: threshold .04 (AReaL's example). Edge cases: at the rollout policy nothing is dropped. Reduction: a large
    threshold is GRPO without clipping, mean over tokens.

    Disagreements: AReaL compares the policy that sampled with the one at the start of the update, which are one policy
    here; its documentation has the formula above, with the current policy. It drops within a micro-batch, we within
    the mini-batch, and its example normalises advantages over the batch as well. Checked: the tokens kept equal
    AReaL's, whose procedure the test rewrites as a loop. The paper was not read. Neither verl nor TRL has it.
    """

    name: ClassVar[str] = "m2po"
    token_columns: ClassVar[tuple[str, ...]] = ("kept",)
    prepares: ClassVar[bool] = True

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in the paper."""
    threshold: float = dataclasses.field(default=0.04, metadata={"gt": 0.0})
    """The mean squared log ratio of the tokens kept is below."""

    def prepare(self, batch: TokenBatch, seed: int) -> Mapping[str, Tensor]:
        square_N, order_N = batch.log_ratio_BT[batch.mask_BT].square().sort(descending=True)
        # The mean without the n largest, for n = 0, 1, ...; it falls with n.
        kept_N = square_N * 0 + 1
        rest_N = square_N.flip(0).cumsum(0).flip(0) / kept_N.cumsum(0).flip(0)
        drops = min(int((rest_N >= self.threshold).sum()), len(order_N) - 1)
        kept_N[order_N[:drops]] = 0
        return {"kept": (batch.logp_BT * 0).masked_scatter(batch.mask_BT, kept_N)}

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        return super().policy_loss(batch) * batch.columns["kept"]

    def report(self, batch: TokenBatch) -> Report:
        """`train/clip_moment`: the share of the tokens with an advantage that are dropped."""
        drops = (batch.active_BT & (batch.columns["kept"] == 0)).sum()
        return Report({**super().report(batch).sums, "train/clip_moment": (drops, batch.active_BT.sum())})


@dataclass(frozen=True)
class Dro(GroupRelative):
    """DRO (arXiv 2405.19107): REINFORCE under a squared penalty on the log ratio; no ratio, no clipping.

    Direct Reward Optimization, as Kimi k1.5 (arXiv 2501.12599) made it a loss for groups. Loss -log pi A + beta/2 (log
    pi - log pi_old)^2 of each token, mean over tokens; A = r - mean r, which stands for the soft value of the paper.

    Defaults: beta .1 (ROLL's `kimi15_tau`; verl has none, Tinker's example has .05). Edge cases: groups without an
    advantage have the gradient of the penalty, so that they are trained as soon as the policy has moved. The value is
    no surrogate of the reward. W(p) is p(1 - p) at the rollout policy.

    Disagreement: Kimi's formula has the ratio of the whole response in the square; verl, ROLL and Tinker have the
    ratio of each token, and so do we. Checked: loss and gradient equal verl 0.9.1's function `dro` (executed). TRL has
    none.
    """

    name: ClassVar[str] = "dro"

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in verl."""
    beta: float = dataclasses.field(default=0.1, metadata={"gt": 0.0})
    """Weight of the penalty on the squared log ratio."""

    @property
    def screens(self) -> bool:
        return True

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """Every rollout may have the gradient of the penalty."""
        signals, state = super().signals(step, state)
        return dataclasses.replace(signals, has_gradient_PG=signals.has_gradient_PG | True), state

    def has_gradient(self, batch: TokenBatch) -> Tensor:
        """Sequences with an advantage, or with a token whose probability has moved."""
        return super().has_gradient(batch) | ((batch.log_ratio_BT != 0) & batch.mask_BT).any(-1)

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        return -batch.logp_BT * batch.A_BT

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        """The term `policy`, and the term `drift`: beta/2 times the squared log ratio."""
        drift = Term("drift", self.beta / 2 * batch.log_ratio_BT**2, self.weight(batch))
        return TokenLoss((*super().token_loss(batch).terms, drift))
