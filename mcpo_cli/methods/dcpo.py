"""DCPO (arXiv 2509.02333): clip bounds that widen for unlikely tokens, rewards that cumulate over visits.

Clipping: the ratio stays in [1/2 + 1/2 sqrt(max(1 - 4 clip_low/q, 0)), min(1/2 + 1/2 sqrt(1 + 4 clip_high/q), 10)], q
the probability of the token under the rollout policy (BT). Advantages (SAS): at a prompt's i-th visit, A_new
standardises by its group, A_tot by all rewards ever seen for the prompt; S_new = ((i-1) A_new + A_tot)/i, S_tot =
(A_new + (i-1) A_tot)/i, and A is the smaller of both in absolute value, S_tot at a tie; A_PG.

Defaults: .16/.20 (paper). State of a prompt: visits, rewards, their sum and sum of squares. Edge cases: the first
visit gives A_new; an all-right group of a prompt that was once wrong bears. At q < 4 clip_low the lower bound is 1/2.
Prompts must come back (`task.pool`). W(p) depends on the past: no curve.

Disagreement: the paper's loss sums means over tokens over the sequences; here it is divided by their number, a
constant factor. Default `ddof=0`. Not verified: bounds were derived from Eq. 3, the paper's text was read; its code
was not. Neither verl nor TRL has it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mcpo_cli.methods import prompt_memory
from mcpo_cli.methods.base import Signals, State, Step, TokenBatch
from mcpo_cli.methods.group_relative import Clipped, Standardized

if TYPE_CHECKING:
    from torch import Tensor

RATIO_MAX = 10.0
"""Where the upper bound itself ends."""


def smoothed(new: Tensor, total: Tensor, visit: Tensor) -> Tensor:
    """The smaller of S_new and S_tot in absolute value; `visit` counts from 1."""
    by_new, by_total = ((visit - 1) * new + total) / visit, (new + (visit - 1) * total) / visit
    return by_new.where(by_new.abs() < by_total.abs(), by_total)


@dataclass(frozen=True)
class Dcpo(Clipped, Standardized):
    """Dynamic Clipping Policy Optimization."""

    name: ClassVar[str] = "dcpo"

    clip_low: float = dataclasses.field(default=0.16, metadata={"ge": 0.0, "lt": 1.0})
    """Width of the lower bound, which the token's probability scales."""
    clip_high: float = dataclasses.field(default=0.2, metadata={"ge": 0.0})
    """Width of the upper bound, which the token's probability scales."""

    @property
    def uses_dead_groups(self) -> bool:
        return True

    def bounds(self, batch: TokenBatch) -> tuple[Any, Any]:
        inverse_BT = (-batch.logp_old_BT).exp()
        low_BT = (1 - 4 * self.clip_low * inverse_BT).clamp(min=0).sqrt()
        high_BT = (1 + 4 * self.clip_high * inverse_BT).sqrt()
        return 0.5 + 0.5 * low_BT, (0.5 + 0.5 * high_BT).clamp(max=RATIO_MAX)

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        reward_PG = step.reward_PG.double()
        G, one_P = reward_PG.shape[-1], reward_PG[:, 0] * 0 + 1
        now = {"visits": one_P, "count": one_P * G, "sum": reward_PG.sum(-1), "squares": (reward_PG**2).sum(-1)}
        rows, place_P = prompt_memory.rows(state, step.prompt_P, dict.fromkeys(now, 0.0))
        rows |= {name: rows[name].index_add(0, place_P, value_P) for name, value_P in now.items()}
        visit_P, count_P, sum_P, squares_P = (rows[name][place_P] for name in now)
        mean_P = sum_P / count_P
        variance_P = (squares_P / count_P - mean_P**2) * count_P / (count_P - self.ddof)
        # The difference of squares is off by rounding where all rewards are equal.
        spread_P = variance_P > 1e-12
        std_P = variance_P.where(spread_P, variance_P * 0 + 1).sqrt()
        total_PG = (reward_PG - mean_P[:, None]) / std_P[:, None] * spread_P[:, None]
        advantage_PG = smoothed(self.standardized(reward_PG), total_PG, visit_P[:, None])
        return Signals(advantage_PG, advantage_PG != 0), rows
