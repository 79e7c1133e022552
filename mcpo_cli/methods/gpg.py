"""GPG (arXiv 2504.02546): REINFORCE on centred rewards, rescaled for groups without a signal; no ratio, no clipping.

A = alpha (r - mean r), alpha = rollouts / rollouts of groups whose rewards differ, over the global step (1 where there
is none); A_PG. Loss -log pi A, mean over tokens.

Defaults: mean over tokens. Edge cases: groups whose rewards are equal have A = 0. Without a ratio the gradient is
biased from the second mini-batch of a step on.

Disagreement: verl 0.9.1 counts rewards that are not 0 instead of rollouts of live groups, so its alpha is another
number wherever a group is all right, or a live one has a wrong answer. Default `count=live`, the paper's;
`count=nonzero` is verl's. W(p) depends on the batch: no curve. Checked: advantage (`count=nonzero`) and loss equal
verl's functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import Method, TokenBatch
from mcpo_cli.methods.group_relative import Aggregation, GroupRelative

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Gpg(GroupRelative):
    """Group Policy Gradient."""

    name: ClassVar[str] = "gpg"

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in the paper."""
    count: Literal["live", "nonzero"] = "live"
    """What alpha divides by: rollouts of groups whose rewards differ (paper), or rewards that are not 0 (verl)."""

    query_weight = Method.query_weight

    def advantages(self, reward_PG: Tensor, correct_PG: Tensor) -> Tensor:
        """alpha (r - mean r); the groups must be those of one whole step."""
        advantage_PG = super().advantages(reward_PG, correct_PG)
        counted_PG = (advantage_PG != 0).any(-1, keepdim=True).expand_as(advantage_PG)
        if self.count == "nonzero":
            counted_PG = reward_PG != 0
        return advantage_PG * (advantage_PG.numel() / counted_PG.sum().clamp(min=1))

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        return -batch.logp_BT * batch.A_BT
