"""MCPO (arXiv 2604.16972) with what its readers asked for: three options, all of them off by default.

At its defaults it is `mcpo`; it is a method of its own so that runs of the paper's keep their names. None of the three
is in the paper.

`mastery` below 1: with G rollouts a prompt of accuracy .95 is seen as mastered in one step and not in the next, so the
hinge lets go of it half the time. Here the right rollouts of prompts with p >= mastery are held; wrong ones are not,
as there is nothing to preserve.

`reweight_cap` above 0: at p = 1 - 1/G, Eq. 13 gives the one wrong answer A = -G/2. The factor 1/(2 sqrt(p(1 - p))) is
cut to the cap; W(p) falls below 1/2 where it is.

`target_active` above 0: delta = .01 was chosen for one learning rate and engine; how much of the drift it permits
depends on both. Here delta follows the share of mastered prompts' tokens that are outside of it: after each global
step delta <- delta exp(rate min(share/target - 1, 1)). The state is delta.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mcpo_cli.methods.base import Floats, Signals, State, Step, TokenBatch
from mcpo_cli.methods.mcpo import Mcpo

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class McpoExtended(Mcpo):
    """MCPO with a hinge on almost mastered prompts, a cap on the reweighting, and a drift budget that adapts."""

    name: ClassVar[str] = "mcpo_extended"
    columns: ClassVar[tuple[str, ...]] = ("mastered", "delta")

    mastery: float = dataclasses.field(default=1.0, metadata={"gt": 0.0, "le": 1.0})
    """Accuracy from which on the hinge holds the right rollouts of a prompt; 1 is the paper's."""
    reweight_cap: float = dataclasses.field(default=0.0, metadata={"ge": 0.0})
    """The largest factor that Eq. 13 may put on an advantage; 0 is no limit, the paper's."""
    target_active: float = dataclasses.field(default=0.0, metadata={"ge": 0.0, "lt": 1.0})
    """Share of mastered prompts' tokens outside the drift budget that delta is moved towards; 0 leaves delta alone."""
    rate: float = dataclasses.field(default=0.2, metadata={"gt": 0.0, "le": 1.0})
    """The largest change of log delta after a global step."""

    def scale(self, p: Floats) -> Floats:
        """Eq. 13, at least 1/cap."""
        scale, least = super().scale(p), 1 / self.reweight_cap if self.reweight_cap else 0.0
        return (scale + least + abs(scale - least)) / 2

    def mastered(self, step: Step) -> Tensor:
        # Accuracies are multiples of 1/G: .9 of ten rollouts must not depend on rounding.
        return (step.p_P[:, None] >= self.mastery - 1e-9) & step.correct_PG.bool()

    def budget(self, batch: TokenBatch) -> float:
        return float(batch.columns["delta"][0])

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """The column `delta` carries the budget, which is the state."""
        signals, state = super().signals(step, state)
        delta = state["delta"] if state else step.p_P.new_tensor([self.delta])
        columns = {**signals.columns, "delta": delta.expand(step.reward_PG.shape)}
        return dataclasses.replace(signals, columns=columns), {"delta": delta}

    def learn(self, state: State, measured: Mapping[str, float]) -> State:
        """Move delta towards the target; a step without mastered prompts says nothing."""
        share = measured.get("hinge/tokens_active")
        if not self.target_active or share is None:
            return state
        return {"delta": state["delta"] * math.exp(self.rate * min(share / self.target_active - 1, 1))}
