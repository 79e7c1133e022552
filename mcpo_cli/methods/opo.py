"""OPO (arXiv 2505.23585): the baseline of least variance, which weighs each reward by its response's length.

A = r - sum of |y| r / sum of |y| over the group; A_PG. The loss is PPO's clipped surrogate; the paper trains
on-policy, where no ratio is clipped.

Defaults: clip .2/.2 and the suite's aggregation. Edge cases: equal rewards give A = 0. A baseline is a constant of the
group: W(p) = p(1 - p), that of `dr_grpo`. Reduction: equal lengths give r - mean r. No disagreement: advantages equal
verl 0.9.1's function; TRL has none.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from mcpo_cli.methods.base import Signals, State, Step
from mcpo_cli.methods.group_relative import Clipped, GroupRelative


@dataclass(frozen=True)
class Opo(Clipped, GroupRelative):
    """On-Policy RL with the optimal baseline."""

    name: ClassVar[str] = "opo"

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """The length-weighted mean of r - mean r is how far this baseline is from the mean."""
        signals, state = super().signals(step, state)
        centred_PG, length_PG = signals.advantage, step.length_PG
        shift_P1 = (centred_PG * length_PG).sum(-1, keepdim=True) / length_PG.sum(-1, keepdim=True)
        advantage_PG = centred_PG - shift_P1
        return dataclasses.replace(signals, advantage=advantage_PG, bears_PG=advantage_PG != 0), state
