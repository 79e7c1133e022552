"""LUSPO (arXiv 2602.05261): GSPO whose sequences weigh as much as they are long.

Loss -|y| min(s A, clip(s) A) of a sequence with GSPO's ratio s, mean over sequences: GSPO's token values, summed over
tokens instead of averaged. Defaults, edge cases: GSPO's. Checked: loss and gradient equal TRL 1.16's lines
(`loss_type=luspo`, executed); verl 0.9.1 has none. The paper's own code was not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mcpo_cli.methods.base import TokenBatch
from mcpo_cli.methods.gspo import Gspo

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Luspo(Gspo):
    """Length-Unbiased Sequence Policy Optimization."""

    name: ClassVar[str] = "luspo"

    def weight(self, batch: TokenBatch) -> Tensor:
        """GSPO's times |y|: 1/B a token."""
        return super().weight(batch) * batch.length_B
