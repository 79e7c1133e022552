"""Lite PPO (arXiv 2508.08221): the group's mean as baseline, the batch's deviation as scale, token mean.

A = (r - mean r of the group) / s, with s the standard deviation of all raw rewards of the global step; A_PG. The loss
is PPO's clipped surrogate, averaged over tokens.

Defaults: clip .2/.2, mean over tokens (the paper's two techniques). Edge cases: s = 0 gives A = 0; a group whose
rewards are equal has A = 0. Disagreement: TRL 1.16 (`scale_rewards=batch`) takes the sample deviation, `ddof=1`;
default 0 as everywhere here. W(p) depends on the batch: no curve. Checked: the paper's text and TRL's code were read,
not executed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mcpo_cli.methods.base import Method
from mcpo_cli.methods.group_relative import Aggregation, Clipped, GroupRelative, Standardized

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LitePpo(Clipped, Standardized, GroupRelative):
    """Lite PPO."""

    name: ClassVar[str] = "lite_ppo"

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens is half of the method."""

    query_weight = Method.query_weight

    def divisor(self, reward_PG: Tensor, p_P1: Tensor) -> Tensor:
        """The standard deviation of all rewards of the step."""
        return p_P1 * 0 + reward_PG.std(correction=self.ddof)
