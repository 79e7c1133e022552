"""REINFORCE++ (arXiv 2501.03262): rewards whitened over the tokens of the whole global step, without groups.

x = r (`baseline=none`), or x = r - mean r of the group (`baseline=group`, REINFORCE++-baseline); then A = (x - mean) /
sqrt(var + 1e-8) over all tokens of the step, where each token carries its sequence's x and var is the sample variance.
A_PG, the same for the tokens of a rollout; discount 1. The loss is PPO's clipped surrogate.

Defaults: clip .2/.2, mean over tokens (released code). Edge cases: all x equal gives A = 0. Groups with p = 0 or p = 1
bear a gradient: with `baseline=group` their x is 0, but the token-weighted mean of x is not where right and wrong
answers differ in length, so all of them get the same small advantage. That is the method, and it stays.

Disagreement: the paper subtracts a KL penalty to a reference policy from the reward of each token. The suite has no
reference policy, so there is none here. Checked: both baselines equal verl 0.9.1's functions; TRL has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from mcpo_cli.methods.base import Signals, State, Step
from mcpo_cli.methods.group_relative import Aggregation, Clipped, whitened


@dataclass(frozen=True)
class ReinforcePp(Clipped):
    """REINFORCE++ and REINFORCE++-baseline."""

    name: ClassVar[str] = "reinforce_pp"

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in the released code."""
    baseline: Literal["none", "group"] = "none"
    """What is whitened: the reward, or its difference from the group's mean."""

    @property
    def uses_dead_groups(self) -> bool:
        return True

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        x_PG = step.reward_PG.double()
        if self.baseline == "group":
            x_PG = x_PG - x_PG.mean(-1, keepdim=True)
        advantage_PG = whitened(x_PG, step.length_PG)
        return Signals(advantage_PG, advantage_PG != 0), state
