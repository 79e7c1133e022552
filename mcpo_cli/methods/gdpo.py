"""GDPO (arXiv 2601.05242): each reward channel normalised within its group, then their sum over the batch.

Channels: r, and minus the length |y| of a response with the weight `brevity`. A' = the sum over channels of weight
(channel - mean) / std, with mean and std of the group; then A = (A' - mean A') / std A' over all rollouts of the global
step (`whiten=sequences`), or over all its tokens with the sample variance (`whiten=tokens`); A_PG. The loss is PPO's
clipped surrogate.

Defaults: both channels weigh 1, clip .2/.2. Edge cases: a channel that is equal within a group adds 0; so groups with
p = 0 or p = 1 bear by their lengths, unless `brevity` is 0. W(p) depends on the batch: no curve. Reduction: without
lengths and with `whiten=tokens` it is REINFORCE++-baseline of `grpo`'s advantages.

Disagreements: verl 0.9.1 normalises over tokens, TRL 1.16 over sequences with `ddof=1`; both take any reward
functions, and the second one here is the length because tasks have one reward. Checked: without lengths equal to
verl's function; TRL's lines were read.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

from mcpo_cli.methods.base import Signals, State, Step
from mcpo_cli.methods.group_relative import EQUAL, Clipped, Standardized, whitened


@dataclass(frozen=True)
class Gdpo(Clipped, Standardized):
    """Group reward-Decoupled Normalization Policy Optimization."""

    name: ClassVar[str] = "gdpo"

    brevity: float = dataclasses.field(default=1.0, metadata={"ge": 0.0})
    """Weight of short responses beside the reward."""
    whiten: Literal["sequences", "tokens"] = "sequences"
    """Over what the sum of the channels is normalised."""

    @property
    def uses_dead_groups(self) -> bool:
        return self.brevity > 0

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        sum_PG = self.standardized(step.reward_PG) - self.brevity * self.standardized(step.length_PG)
        by_token_PG = whitened(sum_PG, step.length_PG)
        by_sequence_PG = self.standardized(sum_PG.flatten()).view_as(sum_PG)
        advantage_PG = by_token_PG if self.whiten == "tokens" else by_sequence_PG
        # Channels that cancel leave a rounding error.
        advantage_PG = advantage_PG * (advantage_PG.abs() > EQUAL)
        return Signals(advantage_PG, advantage_PG != 0), state
