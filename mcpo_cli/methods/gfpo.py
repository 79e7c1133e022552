"""GFPO (arXiv 2508.09726): sample more, learn from the k shortest (or most efficient) rollouts of a group.

Of G rollouts k are kept: the shortest, or those of largest r/|y| (`metric=efficiency`; ties by place). A as in `grpo`
with mean and deviation over the kept ones; the others have A = 0 and do not count in the totals of the mini-batch.
A_PG. The loss is PPO's clipped surrogate.

Defaults: k = 8, clip .2/.2 (the paper has G up to 24, k up to 8). Edge cases: kept rollouts that are all right or all
wrong give 0 (`degenerate` looks at the kept ones). W(p) depends on lengths: no curve. Reduction: k = G is `grpo`.

Disagreement: TRL had an experimental trainer, removed since; verl has none. Checked: the paper's text was read, no
code executed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from mcpo_cli.methods.base import Method, Signals, State, Step, Training
from mcpo_cli.methods.group_relative import Clipped, Normalized


@dataclass(frozen=True)
class Gfpo(Clipped, Normalized):
    """Group Filtered Policy Optimization."""

    name: ClassVar[str] = "gfpo"

    keep: int = dataclasses.field(default=8, metadata={"ge": 2})
    """k: rollouts of a group that are learned from; at most `train.rollouts`."""
    metric: Literal["length", "efficiency"] = "length"
    """Keep the shortest, or those with most reward a token."""

    def contradictions(self, train: Training) -> Iterator[tuple[str, str]]:
        yield from super().contradictions(train)
        if self.keep > train.rollouts:
            yield (
                f"method.keep={self.keep} is more than train.rollouts={train.rollouts}",
                f"method.keep={train.rollouts}",
            )

    query_weight = Method.query_weight

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        reward_PG, length_PG = step.reward_PG.double(), step.length_PG
        order_PG = length_PG if self.metric == "length" else -reward_PG / length_PG
        kept_PK = order_PG.argsort(stable=True)[:, : self.keep]
        advantage_PK = self.advantages(reward_PG.gather(-1, kept_PK), step.correct_PG.gather(-1, kept_PK))
        advantage_PG = (reward_PG * 0).scatter(-1, kept_PK, advantage_PK)
        counts_PG = (length_PG * 0).scatter(-1, kept_PK, 1).bool()
        return Signals(advantage_PG, advantage_PG != 0, counts_PG), state
