"""COPO (arXiv 2508.04138): a batch-level advantage of each prompt beside the group's, blended by the answers' entropy.

Local: A_l as in `grpo`. Global: R_i = mean r of group i, A_g = (R_i - mean R) / std R over the prompts of the global
step, the same for all rollouts and tokens. H_i is the entropy in bits of the group's distinct answers, w_i = sigmoid(k
(H_i - b)). The loss has two clipped surrogates, w f(r, A_l) + (1 - w) f(r, A_g), not one blended advantage, as
clipping depends on each sign. Both are columns PG of the signals, times their weight; their sum is the advantage at a
ratio of 1.

Defaults: k = 5, b = 1 (released script; another for 3B has k = 20, the functions' own are 1 and .5), clip .2/.2. Edge
cases: one prompt, or equal R, gives A_g = 0; answers that cannot be extracted are one class of answers. Reduction:
`blend=none` is `grpo`.

Disagreements: the paper names k and b gamma and rho. The released launch script sets a blend, `soft-with-zero`, that
its own code rejects (it knows `soft with zero`), and turns the consistency factor off that the paper describes. Which
blend made the published numbers is not known; results here are results of our choice, `soft` without the factor.
Default `ddof=0`, the code's is 1. Checked: the released code was read, not executed. Neither verl nor TRL has it.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import Need, Signals, State, Step, TokenBatch
from mcpo_cli.methods.group_relative import Clipped, Standardized

if TYPE_CHECKING:
    from torch import Tensor


def answer_entropy(answer_PG: Tensor) -> Tensor:
    """Entropy of each group's distinct answers in bits, P, float64."""
    same_PGG = answer_PG[:, :, None] == answer_PG[:, None, :]
    return -same_PGG.double().mean(-1).log2().mean(-1)


@dataclass(frozen=True)
class Copo(Clipped, Standardized):
    """Consistency-aware Policy Optimization."""

    name: ClassVar[str] = "copo"
    columns: ClassVar[tuple[str, ...]] = ("local", "batch")

    blend: Literal["soft", "soft-zero", "forced", "none", "global"] = "soft"
    """w: sigmoid(k (H - b)); the same but 0 for rewards of 0; the same but 0 where A_l is 0; 1; 0."""
    steepness: float = dataclasses.field(default=5.0, metadata={"gt": 0.0})
    """k of the blend's sigmoid, a bit of entropy."""
    midpoint: float = dataclasses.field(default=1.0, metadata={"ge": 0.0})
    """b: the entropy of the answers, bits, at which both advantages weigh the same."""
    consistency: bool = False
    """Multiply R_i by 1 - H_i (1 - 1/G) / log2 G, as the paper describes and the released script does not."""

    @property
    def uses_dead_groups(self) -> bool:
        return self.blend != "none"

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"answers"})

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        assert step.answer_PG is not None
        reward_PG, H_P = step.reward_PG.double(), answer_entropy(step.answer_PG)
        local_PG, R_P, G = self.standardized(reward_PG), reward_PG.mean(-1), reward_PG.shape[-1]
        if self.consistency:
            R_P = R_P * (1 - H_P * (1 - 1 / G) / math.log2(G))
        w_PG = ((H_P - self.midpoint) * self.steepness).sigmoid()[:, None].expand_as(local_PG)
        weights = {"soft": w_PG, "none": w_PG * 0 + 1, "global": w_PG * 0}
        weights |= {"soft-zero": w_PG * (reward_PG != 0), "forced": w_PG * (local_PG != 0)}
        weight_PG = weights[self.blend]
        columns = {"local": weight_PG * local_PG, "batch": (1 - weight_PG) * self.standardized(R_P)[:, None]}
        bears_PG = (columns["local"] != 0) | (columns["batch"] != 0)
        return Signals(columns["local"] + columns["batch"], bears_PG, columns=columns), state

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        """The surrogates of both advantages; each weight is in its advantage, as f(r, wA) = w f(r, A)."""
        local_BT = super().policy_loss(batch.replace(advantage_BT=batch.columns["local"][:, None]))
        return local_BT + super().policy_loss(batch.replace(advantage_BT=batch.columns["batch"][:, None]))
