"""PSR, NSR and W-REINFORCE (arXiv 2506.01347): reinforce right answers with one weight, wrong ones with another.

A = `positive` for right rollouts, -`negative` for wrong ones, without baseline or scale; A_PG. The loss is PPO's
clipped surrogate, averaged over tokens.

Defaults: .1 and 1 (W-REINFORCE, the paper's lambda = .1); 1 and 0 is PSR, 0 and 1 is NSR; clip .2/.2. Edge cases: no
group is dead, p = 0 and p = 1 bear in full. Binary rewards only; shaped ones are refused. W(p) = (positive + negative)
p(1 - p), as a constant of the group drops out of it. Checked: advantages equal the authors' function (executed).
Neither verl nor TRL has it.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

from mcpo_cli.methods.base import Floats, Signals, State, Step
from mcpo_cli.methods.group_relative import Aggregation, Clipped


@dataclass(frozen=True)
class PsrNsr(Clipped):
    """Positive and negative sample reinforcement."""

    name: ClassVar[str] = "psr_nsr"
    binary_rewards: ClassVar[bool] = True

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in the released code."""
    positive: float = dataclasses.field(default=0.1, metadata={"ge": 0.0})
    """Advantage of right rollouts (lambda)."""
    negative: float = dataclasses.field(default=1.0, metadata={"ge": 0.0})
    """Minus the advantage of wrong rollouts."""

    @property
    def uses_dead_groups(self) -> bool:
        return True

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        return (self.positive + self.negative) * p * (1 - p)

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        right_PG = step.correct_PG.double()
        advantage_PG = self.positive * right_PG - self.negative * (1 - right_PG)
        return Signals(advantage_PG, advantage_PG != 0), state
