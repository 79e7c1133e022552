"""GMPO (arXiv 2507.20673): the geometric mean of token ratios, each clipped in log space before the mean.

d' = min(d, clip_high) where A > 0, max(d, -clip_low) where A < 0; loss -A exp(mean_t d'), the same for the tokens of a
sequence (BT), mean over sequences. A as in `grpo`.

Defaults: .4/.4, so that ratios stay in (e^-.4, e^.4) (the paper's choice). `clip_low` and `clip_high` are limits of
the log ratio here, of the ratio in other methods. Edge cases: A = 0 gives 0; the released code takes its sign as
positive, which is the same. Reduction: without clipping it is `gspo` without clipping.

Disagreement: verl 0.9.1 (`geo_mean`) takes a mean over the micro-batch, which depends on the split; ours divides by
the sequences of the mini-batch. Checked: loss and gradient equal verl's function; TRL's experimental trainer was read
only.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from mcpo_cli.methods.base import TokenBatch
from mcpo_cli.methods.group_relative import Clipped, Normalized

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Gmpo(Clipped, Normalized):
    """Geometric-Mean Policy Optimization."""

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
