"""MCPO with knobs on the query weight, to tell apart why reweighting (Eq. 13) changes how fast a policy learns."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mcpo_cli.methods.base import Floats
from mcpo_cli.methods.mcpo import Mcpo

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Reweighted(Mcpo):
    """A diagnostic, not a method to train with: at its defaults it is MCPO. The options take effect in their order."""

    name: ClassVar[str] = "reweighted"

    majority_weight: float = dataclasses.field(default=1.0, metadata={"gt": 0.0})
    """Multiplies the advantages of prompts with 0.5 < p < 1."""
    clip_advantage: float = dataclasses.field(default=0.0, metadata={"ge": 0.0})
    """Advantages are cut to [-clip_advantage, clip_advantage]; 0 cuts nothing."""
    renormalise: bool = False
    """Scale all advantages of a batch so that the sum of mean_i |A_i| over its prompts is that of the plain advantages
    of Eq. 1: what remains is how the weight is distributed, not how much of it there is."""

    @property
    def label(self) -> str:
        changes = {
            f"majority{self.majority_weight:g}": self.majority_weight != 1,
            f"clip{self.clip_advantage:g}": self.clip_advantage > 0,
            "renormalised": self.renormalise,
        }
        return "-".join([super().label, *(change for change, made in changes.items() if made)])

    def scale(self, p: Floats) -> Floats:
        """Eq. 13 divided by the weight of majority-correct prompts."""
        return super().scale(p) / (1 + (p > 0.5) * (p < 1) * (self.majority_weight - 1))

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """mean_i (c_i - p) A_i = p(1 - p)(A+ - A-) of a group with binary rewards: the factor of its gradient of p.

        Without a cut this is mean_i c_i A_i (Eq. 6). A cut leaves advantages whose mean is not 0, and the right
        answers alone do not show it: at p > 0.5 it is the wrong ones' that are large. `renormalise` has no closed
        form, as its factor depends on the batch: the curve then is right up to that factor.
        """
        weight, cut = super().query_weight(p, rollouts), self.clip_advantage
        if not cut:
            return weight
        # A+ = weight / p and A- = -weight / (1 - p), written without the divisions.
        return (1 - p) * _minimum(weight, p * cut) + p * _minimum(weight, (1 - p) * cut)

    def advantages(self, reward_PG: Tensor, correct_PG: Tensor) -> Tensor:
        """As in `Method.advantages`; with `renormalise` the groups must be those of one whole batch."""
        advantage_PG = super().advantages(reward_PG, correct_PG)
        if self.clip_advantage:
            advantage_PG = advantage_PG.clamp(-self.clip_advantage, self.clip_advantage)
        if not self.renormalise:
            return advantage_PG
        plain = Mcpo(reweight=False, ddof=self.ddof, degenerate=self.degenerate)
        total, wanted = advantage_PG.abs().sum(), plain.advantages(reward_PG, correct_PG).abs().sum()
        return advantage_PG * (wanted / total.where(total > 0, total + 1))


def _minimum(a: Floats, b: Floats) -> Floats:
    return (a + b - abs(a - b)) / 2
