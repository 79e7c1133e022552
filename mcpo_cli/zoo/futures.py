"""Methods that give a token the credit of what comes after it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mcpo_cli.methods.base import Report, TokenBatch
from mcpo_cli.methods.group_relative import Aggregation
from mcpo_cli.zoo.trust_regions import DualClip

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Fipo(DualClip):
    """FIPO (arXiv 2603.19835): the advantage of a token grows where what comes after it becomes more likely.

    Future-KL Influenced Policy Optimization. F_t = sum over k >= t of gamma^(k - t) d_k, with d = log pi - log pi_old
    and gamma = 2^(-1/half_life), tokens with a ratio above `cap` left out; f = exp(F) cut to [1, 1 + influence], a
    constant; loss f times that of `dual_clip`, mean over tokens. A as in `grpo`.

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
        active_BT = batch.mask_BT & (batch.advantage_BT != 0)
        influence = (self.influence_weight(batch) * active_BT).sum()
        return Report({**super().report(batch).sums, "train/influence": (influence, active_BT.sum())})
