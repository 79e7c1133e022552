"""Unlikeliness reward (arXiv 2506.02355): right answers are worth less the likelier they were.

rank = the rank of a rollout in its group by mean log-probability of its tokens under the rollout policy, 0 the least
likely (ties by place); r' = r (1 - beta rank/G); A as in `grpo`, of r'; A_PG. The loss is PPO's clipped surrogate.

Defaults: beta .25, clip .2/.2. Edge cases: groups with p = 0 have r' = 0 and A = 0; groups with p = 1 get a full-size
advantage, as any spread of r' is divided by itself: mastered prompts are actively flattened, the opposite of MCPO's
hinge. `mastered=zero` takes that away, to tell the two effects apart. Reduction: beta = 0 is `grpo`.

Disagreements: the code ranks by the mean log-probability, the paper by probability; the paper's penalty is beta (G -
rank)/G with rank 0 the most likely, beta/G more for everyone (`convention=paper`; from memory, not verified). Default
the code's. The published recipe has two epochs a batch, a KL term of .10 and only groups with a right answer; here the
reward alone is the method. Checked: the released code was read, not executed. Neither verl nor TRL has it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

from mcpo_cli.methods.base import Need, Signals, State, Step
from mcpo_cli.methods.group_relative import Clipped, Standardized


@dataclass(frozen=True)
class Unlikeliness(Clipped, Standardized):
    """GRPO with the unlikeliness reward."""

    name: ClassVar[str] = "unlikeliness"

    beta: float = dataclasses.field(default=0.25, metadata={"ge": 0.0, "le": 1.0})
    """What the likeliest right answer of a group loses, nearly."""
    convention: Literal["code", "paper"] = "code"
    """Penalty beta rank/G, 0 for the least likely (released code), or beta (rank + 1)/G (paper)."""
    mastered: Literal["keep", "zero"] = "keep"
    """Advantages of prompts with p = 1: those of their ranks, or 0."""

    @property
    def uses_dead_groups(self) -> bool:
        return self.mastered == "keep"

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"logp"})

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        assert step.logp_PGT is not None
        mean_PG = (step.logp_PGT.double() * step.mask_PGT).sum(-1) / step.length_PG
        rank_PG = mean_PG.argsort(stable=True).argsort() + (self.convention == "paper")
        reward_PG = step.reward_PG * (1 - self.beta * rank_PG / rank_PG.shape[-1])
        advantage_PG = self.standardized(reward_PG)
        if self.mastered == "zero":
            advantage_PG = advantage_PG * (step.p_P < 1)[:, None]
        return Signals(advantage_PG, advantage_PG != 0), state
