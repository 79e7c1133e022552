"""Clip-Cov (arXiv 2505.22617): random tokens of large covariance of advantage and log-probability are left out.

cov = (A - mean A)(log pi - mean log pi), means over the mini-batch's tokens at the policy of now; of the unclipped
tokens with cov_low < cov < cov_high a random share of all tokens, at least one, has its loss multiplied by 0 (column
`kept`, BT). A as in `grpo`; the loss is PPO's clipped surrogate.

Defaults: share 2e-4, bounds 1 and 5, clip .2/.2 (verl's function). Edge cases: no candidate, nothing dropped. The draw
is of the mini-batch's own random stream, so a resumed run repeats it.

Disagreement: verl 0.9.1 computes means and draws in each micro-batch, ours are the mini-batch's; that costs a forward
pass without a graph. Checked: loss and gradient equal verl's function but for the draw, which is among the same
candidates. TRL has none.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mcpo_cli.methods.base import TokenBatch
from mcpo_cli.methods.covariance import covariance
from mcpo_cli.methods.group_relative import Aggregation, Clipped, Normalized

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ClipCov(Clipped, Normalized):
    """GRPO whose tokens of large covariance are left out at random."""

    name: ClassVar[str] = "clip_cov"
    token_columns: ClassVar[tuple[str, ...]] = ("kept",)
    prepares: ClassVar[bool] = True
    stop_gradients: ClassVar[bool] = True

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in verl's function."""
    share: float = dataclasses.field(default=2e-4, metadata={"gt": 0.0, "le": 1.0})
    """Of the mini-batch's tokens that are dropped."""
    cov_low: float = 1.0
    """Covariance above which a token may be dropped."""
    cov_high: float = 5.0
    """Covariance below which a token may be dropped; beyond it tokens are left alone."""

    def prepare(self, scores: Mapping[str, Tensor], batch: TokenBatch, seed: int) -> Mapping[str, Tensor]:
        cov_BT, ratio_BT = covariance(batch), self.log_ratio(batch).exp()
        clipped_BT = ratio_BT.clamp(*self.bounds(batch)) * batch.A_BT < ratio_BT * batch.A_BT
        candidate_BT = (cov_BT > self.cov_low) & (cov_BT < self.cov_high) & ~clipped_BT & batch.mask_BT
        place_N2 = candidate_BT.nonzero()
        number = min(max(int(self.share * batch.total.tokens), 1), len(place_N2))
        drawn_N2 = place_N2[random.Random(seed).sample(range(len(place_N2)), number)]
        kept_BT = ratio_BT.detach() * 0 + 1
        kept_BT[drawn_N2[:, 0], drawn_N2[:, 1]] = 0
        return {"kept": kept_BT}

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        return super().policy_loss(batch) * batch.columns["kept"]
