"""GSPO (arXiv 2507.18071): one ratio a sequence, normalised by its length and clipped as a whole.

s = exp(mean_t log(pi / pi_old)) (Eq. 7); loss -min(s A, clip(s) A), mean over sequences (Eq. 5). Defaults of section
5.1: s is clipped to [1 - 3e-4, 1 + 4e-4]. verl's function takes any aggregation; only the mean over sequences is GSPO.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import Report, TokenBatch
from mcpo_cli.methods.group_relative import Clipped, Normalized, clip_shares

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Gspo(Clipped, Normalized):
    """Group Sequence Policy Optimization."""

    name: ClassVar[str] = "gspo"

    aggregation: Literal["seq-mean-token-mean"] = "seq-mean-token-mean"
    """The mean over sequences, which have one ratio each."""
    clip_low: float = dataclasses.field(default=3e-4, metadata={"ge": 0.0, "lt": 1.0})
    """The sequence's ratio is clipped below at 1 - clip_low."""
    clip_high: float = dataclasses.field(default=4e-4, metadata={"ge": 0.0})
    """The sequence's ratio is clipped above at 1 + clip_high."""

    def log_ratio(self, batch: TokenBatch) -> Tensor:
        """log s, the same for every token of a sequence, BT."""
        return batch.mean_B(batch.log_ratio_BT)[:, None].expand_as(batch.log_ratio_BT)

    def report(self, batch: TokenBatch) -> Report:
        """Clip shares of sequences, not of tokens; the divergence is that of tokens."""
        bears_B = (batch.advantage_BT != 0).any(-1)
        shares = clip_shares(self.bounds(batch), batch.mean_B(batch.log_ratio_BT), batch.advantage_BT[:, 0], bears_B)
        return Report({**super().report(batch).sums, **shares})
