"""QAE (arXiv 2509.22611): the K-quantile of a group's rewards as baseline instead of their mean.

A = (r - Q_K) / std r, Q_K the K-quantile; A_PG. Binary rewards: the baseline is 0 for p <= 1 - K, else 1, so right
answers of hard prompts or wrong ones of easy prompts bear, and the others have A = 0. The loss is PPO's clipped
surrogate.

Defaults: K = .4 (.6 against a collapse of entropy), clip .2/.28 (paper). Edge cases: equal rewards give A = 0. A
baseline is a constant of the group, so W(p) is `grpo`'s; what differs is the variance, and which rollouts bear a
gradient.

Disagreement: the released code calls `torch.quantile`, which interpolates: [1,1,0,0] at K = .4 has the baseline .2,
and the paper's two regimes do not hold near p = 1 - K. Default `interpolation=lower`, the inverse distribution
function that the paper defines; `linear` is the code's. Checked: paper and code were read, not executed. Neither verl
nor TRL has it.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.group_relative import Clipped, Normalized

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Qae(Clipped, Normalized):
    """Quantile Advantage Estimation."""

    name: ClassVar[str] = "qae"

    clip_high: float = dataclasses.field(default=0.28, metadata={"ge": 0.0})
    """The ratio is clipped above at 1 + clip_high."""
    quantile: float = dataclasses.field(default=0.4, metadata={"gt": 0.0, "lt": 1.0})
    """K: the share of a group's rewards that are at most the baseline."""
    interpolation: Literal["lower", "linear"] = "lower"
    """Between two rewards: the inverse distribution function (paper), or linear (released code)."""

    def baseline(self, reward_PG: Tensor) -> Tensor:
        """Q_K: the smallest reward that at least a share K of the group does not exceed."""
        if self.interpolation == "linear":
            return reward_PG.quantile(self.quantile, dim=-1, keepdim=True)
        ordered_PG, G = reward_PG.sort(-1).values, reward_PG.shape[-1]
        # Exact decimals: .6 x 5 is 3, whatever floating-point multiplication makes of it.
        place = math.ceil(round(self.quantile * G, 9)) - 1
        return ordered_PG[:, place : place + 1]
