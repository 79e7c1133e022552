"""GRPO-lambda (arXiv 2505.18086): a penalty on length, only for the prompts that the policy answers best.

Prompts are ordered by accuracy; in the best `share` of the global step's prompts (all of them at a tie) a right answer
gets r - alpha sigmoid((|y| - mean)/std), mean and deviation over the lengths of the group's right answers; elsewhere r
stays. A as in `grpo`, of these rewards; A_PG. The loss is PPO's clipped surrogate.

Defaults: share .2, alpha .2, clip .2/.2. Not verified: alpha, share and the exact length term are from memory and from
the works that it builds on; the abstract has the switch by accuracy. Edge cases: prompts with p = 1 bear through their
lengths, which is what the method is for; lengths that are all equal leave A as it is. W(p) depends on the batch: no
curve. Not to be confused with lambda-GRPO (2510.06870). Neither verl nor TRL has it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from mcpo_cli.methods.base import Signals, State, Step
from mcpo_cli.methods.group_relative import EQUAL, Clipped, Standardized


@dataclass(frozen=True)
class GrpoLambda(Clipped, Standardized):
    """GRPO with a length penalty where accuracy is highest."""

    name: ClassVar[str] = "grpo_lambda"

    share: float = dataclasses.field(default=0.2, metadata={"gt": 0.0, "le": 1.0})
    """lambda: the share of prompts, by accuracy, whose right answers pay for their length."""
    alpha: float = dataclasses.field(default=0.2, metadata={"ge": 0.0, "lt": 1.0})
    """What the longest right answer loses, nearly."""

    @property
    def uses_dead_groups(self) -> bool:
        return self.alpha > 0

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        right_PG, length_PG = step.correct_PG.double(), step.length_PG.double()
        best = max(int(self.share * len(right_PG)), 1)
        pays_P1 = (step.p_P >= step.p_P.sort(descending=True).values[best - 1])[:, None]
        count_P1 = right_PG.sum(-1, keepdim=True).clamp(min=1)
        centred_PG = length_PG - (length_PG * right_PG).sum(-1, keepdim=True) / count_P1
        std_P1 = ((centred_PG**2 * right_PG).sum(-1, keepdim=True) / count_P1).sqrt()
        z_PG = centred_PG / std_P1.where(std_P1 > EQUAL, 1.0) * (std_P1 > EQUAL)
        advantage_PG = self.standardized(step.reward_PG - self.alpha * z_PG.sigmoid() * right_PG * pays_P1)
        return Signals(advantage_PG, advantage_PG != 0), state
