"""Two small methods that use what the shipped ones do not: a state across steps, and a pass before each gradient."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mcpo_cli.methods import Clipped, Normalized, Signals, State, Step, TokenBatch


@dataclass(frozen=True)
class Remembering(Clipped):
    """REINFORCE against the mean reward of all steps so far, which is its state; tokens carry the advantage."""

    name: ClassVar[str] = "remembering"
    columns: ClassVar[tuple[str, ...]] = ("length",)
    token_columns: ClassVar[tuple[str, ...]] = ("place",)
    token_advantages: ClassVar[bool] = True

    def initial_state(self) -> State:
        return {"total": torch.zeros(1, dtype=torch.float64), "count": torch.ones(1, dtype=torch.float64)}

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        reward_PG = step.reward_PG.double()
        mask_PGT = step.mask_PGT
        place_PGT = mask_PGT.double().cumsum(-1) * mask_PGT
        # Later tokens weigh more, so that an advantage of tokens is not one of rollouts in disguise.
        weight_PGT = place_PGT / step.length_PG[..., None]
        advantage_PGT = (reward_PG - state["total"] / state["count"])[..., None] * weight_PGT
        after = {"total": state["total"] + reward_PG.sum(), "count": state["count"] + reward_PG.numel()}
        columns = {"length": step.length_PG, "place": place_PGT}
        return Signals(advantage_PGT, (advantage_PGT != 0).any(-1), columns=columns), after

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        """Divided by the mean length of the mini-batch and by the square root of each token's place."""
        mean_length = batch.total.sums["length"] / batch.total.sequences
        return super().policy_loss(batch) / mean_length / batch.columns["place"].clamp(min=1) ** 0.5


@dataclass(frozen=True)
class Centred(Clipped, Normalized):
    """Weighs a token by how far its log-probability is from the mini-batch's mean, under the policy of now."""

    name: ClassVar[str] = "centred"
    token_columns: ClassVar[tuple[str, ...]] = ("surprise",)
    prepares: ClassVar[bool] = True

    def scores(self, batch: TokenBatch) -> Mapping[str, Tensor]:
        return {"logp": batch.logp_BT.detach(), "mask": batch.mask_BT}

    def prepare(self, scores: Mapping[str, Tensor], batch: TokenBatch, seed: int) -> Mapping[str, Tensor]:
        mean = (scores["logp"] * scores["mask"]).sum() / batch.total.tokens
        return {"surprise": (mean - scores["logp"]).exp() * scores["mask"]}

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        return super().policy_loss(batch) * batch.columns["surprise"]
