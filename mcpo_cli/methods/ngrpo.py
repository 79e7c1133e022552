"""NGRPO (arXiv 2509.18851): a virtual rollout of maximal reward in every group, so that all-wrong groups bear.

r' = r with `virtual` copies of `reward_max` appended; A = (r - mean r') / std r', A_PG for the real rollouts. The loss
is PPO's clipped surrogate.

Defaults: one virtual rollout, reward 1, clip .16/.24, mean over tokens (released code). Edge cases: p = 1 gives A = 0;
p = 0 gives -1/sqrt(G) (`ddof=0`) or -1/sqrt(G+1) (`ddof=1`). It applies to mixed groups too, so the sum of A is below
0 in every group but those with p = 1. With shaped rewards `reward_max` stays the task's maximum, not the batch's.

Disagreements: the released script filters groups with p = 1 out while sampling. `dynamic_sampling=true` does that, and
keeps p = 0; the default filters nothing. Default `ddof=0`, the released code's is 1. Checked: advantages equal
the authors' function (executed). Neither verl nor TRL has it.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

from mcpo_cli.methods.base import Floats, Signals, State, Step
from mcpo_cli.methods.group_relative import Aggregation, Clipped, Standardized


@dataclass(frozen=True)
class Ngrpo(Clipped, Standardized):
    """Negative-enhanced Group Relative Policy Optimization."""

    name: ClassVar[str] = "ngrpo"

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in the released code."""
    clip_low: float = dataclasses.field(default=0.16, metadata={"ge": 0.0, "lt": 1.0})
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: float = dataclasses.field(default=0.24, metadata={"ge": 0.0})
    """The ratio is clipped above at 1 + clip_high."""
    virtual: int = dataclasses.field(default=1, metadata={"ge": 1})
    """Virtual rollouts of each group."""
    reward_max: float = 1.0
    """Their reward, the largest that the task gives."""

    def keeps(self, p: Floats) -> Floats:
        """All but the all-right groups, which have no advantage."""
        return p < 1

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """p(1 - p) / sqrt(q(1 - q)) with q = (Gp + n)/(G + n), for `reward_max=1` and `ddof=0`."""
        n = self.virtual / rollouts
        root = ((p + n) * (1 - p)) ** 0.5 / (1 + n)
        return p * (1 - p) / (root + (root == 0))

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        G = step.reward_PG.shape[-1]
        augmented = step.reward_PG.double().new_full((len(step.reward_PG), G + self.virtual), self.reward_max)
        augmented[:, :G] = step.reward_PG
        advantage_PG = self.standardized(augmented)[:, :G]
        return Signals(advantage_PG, advantage_PG != 0), state
