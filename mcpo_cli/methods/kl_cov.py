"""KL-Cov (arXiv 2505.22617): the tokens of largest covariance of advantage and log-probability pay for their drift.

cov as in `clip_cov`; loss -r A of every token, unclipped, plus kappa |log pi - log pi_old| for the share of the
mini-batch's tokens, at least one, of largest cov at the policy of now (column `chosen`, BT). A as in `grpo`.

Defaults: share 2e-4 (verl), kappa .1 (verl's config; its docstring says 1), mean over tokens. Edge cases: a token of a
dead group may be chosen and then bears; at log pi = log pi_old the penalty has no gradient.

Disagreement: verl 0.9.1 chooses in each micro-batch, we in the mini-batch; that costs a forward pass without a graph.
Checked: loss and gradient equal verl's function. TRL has none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mcpo_cli.methods.base import Signals, State, Step, Term, TokenBatch, TokenLoss
from mcpo_cli.methods.covariance import covariance
from mcpo_cli.methods.group_relative import Aggregation, Normalized

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class KlCov(Normalized):
    """GRPO without clipping whose tokens of large covariance are held."""

    name: ClassVar[str] = "kl_cov"
    token_columns: ClassVar[tuple[str, ...]] = ("chosen",)
    prepares: ClassVar[bool] = True
    stop_gradients: ClassVar[bool] = True

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in verl's function."""
    share: float = dataclasses.field(default=2e-4, metadata={"gt": 0.0, "le": 1.0})
    """Of the mini-batch's tokens that pay."""
    kappa: float = dataclasses.field(default=0.1, metadata={"ge": 0.0})
    """Weight of their drift."""

    @property
    def screens(self) -> bool:
        return self.kappa > 0

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """Any rollout may hold a token that pays."""
        signals, state = super().signals(step, state)
        return dataclasses.replace(signals, bears_PG=signals.bears_PG | (self.kappa > 0)), state

    def prepare(self, scores: Mapping[str, Tensor], batch: TokenBatch, seed: int) -> Mapping[str, Tensor]:
        cov_BT = covariance(batch).where(batch.mask_BT, -float("inf"))
        number = max(int(self.share * batch.total.tokens), 1)
        chosen_N = batch.logp_old_BT.flatten() * 0
        chosen_N[cov_BT.flatten().topk(number).indices] = 1
        return {"chosen": chosen_N.view_as(cov_BT)}

    def bears(self, batch: TokenBatch) -> Tensor:
        return super().bears(batch) | (batch.columns["chosen"] > 0).any(-1)

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        """The term `policy`, and `drift`: kappa |d| of the chosen tokens."""
        value_BT = self.kappa * batch.columns["chosen"] * batch.log_ratio_BT.abs()
        return TokenLoss((*super().token_loss(batch).terms, Term("drift", value_BT, self.weight(batch))))
