"""Two small methods with features that few shipped ones use: a state across steps, and a pass before each gradient."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from mcpo_cli.methods import Clipped, Normalized, Signals, State, Step, TokenBatch, get, registry


def kinds() -> list[str]:
    """One method of each kind that the engine computes differently; `e2e/test_devices.py` trains all."""
    found = dict[Any, str]()
    for name in sorted(registry()):
        method = get(name)
        found.setdefault((method.needs, method.token_advantages, method.prepares, method.screens), name)
    return list(found.values())


@dataclass(frozen=True)
class Remembering(Clipped):
    """REINFORCE against the mean reward of all steps so far, which is its state; tokens carry the advantage."""

    name: ClassVar[str] = "remembering"
    columns: ClassVar[tuple[str, ...]] = ("length",)
    token_columns: ClassVar[tuple[str, ...]] = ("place",)
    token_advantages: ClassVar[bool] = True

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        reward_PG = step.reward_PG.double()
        zero = reward_PG.new_zeros(1)
        state = state or {"total": zero, "count": zero + 1}
        mask_PGT = step.mask_PGT
        place_PGT = mask_PGT.double().cumsum(-1) * mask_PGT
        # Later tokens weigh more, so that advantages of tokens differ from those of rollouts.
        weight_PGT = place_PGT / step.length_PG[..., None]
        advantage_PGT = (reward_PG - state["total"] / state["count"])[..., None] * weight_PGT
        after = {"total": state["total"] + reward_PG.sum(), "count": state["count"] + reward_PG.numel()}
        columns = {"length": step.length_PG, "place": place_PGT}
        return dataclasses.replace(Signals.of(advantage_PGT), columns=columns), after

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        """The policy loss over the mean length of the mini-batch and over the square root of each token's place."""
        mean_length = batch.total.sums["length"] / batch.total.sequences
        return super().policy_loss(batch) / mean_length / batch.columns["place"].clamp(min=1) ** 0.5


@dataclass(frozen=True)
class Centred(Clipped, Normalized):
    """Weighs a token by how far its log-probability is from the mini-batch's mean, under the current policy."""

    name: ClassVar[str] = "centred"
    token_columns: ClassVar[tuple[str, ...]] = ("surprise",)
    prepares: ClassVar[bool] = True

    def prepare(self, batch: TokenBatch, seed: int) -> Mapping[str, Tensor]:
        mean = (batch.logp_BT * batch.mask_BT).sum() / batch.total.tokens
        return {"surprise": (mean - batch.logp_BT).exp() * batch.mask_BT}

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        return super().policy_loss(batch) * batch.columns["surprise"]
