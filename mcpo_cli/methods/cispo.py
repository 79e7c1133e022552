"""CISPO (arXiv 2506.13585): the clipped ratio is a constant weight of log pi, so no token loses its gradient.

Loss -sg(clip(r, ratio_min, ratio_max)) A log pi, mean over tokens (Eq. 4-5). MiniMax sets no lower bound and does not
publish its upper one; 5 is ScaleRL's. TRL's `epsilon_high` is the bound itself, verl's is 1 + epsilon on both sides.
Its value is no surrogate of the reward: loss values of different methods do not compare.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mcpo_cli.methods.base import Report, TokenBatch
from mcpo_cli.methods.group_relative import Aggregation, Normalized

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Cispo(Normalized):
    """Clipped IS-weight Policy Optimization."""

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
        bears_BT, ratio_BT = batch.mask_BT & (batch.advantage_BT != 0), batch.log_ratio_BT.exp()
        cut = {"train/clip_high": ratio_BT > self.ratio_max, "train/clip_low": ratio_BT < self.ratio_min}
        shares = {name: ((cut_BT & bears_BT).sum(), bears_BT.sum()) for name, cut_BT in cut.items()}
        return Report({**shares, **super().report(batch).sums})
