"""Variants and controls of MCPO (arXiv 2604.16972); none of them is in the paper."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import (
    Floats,
    Signals,
    State,
    Step,
    TokenBatch,
)
from mcpo_cli.methods.mcpo import ACTIVE, Mcpo

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class McpoExtended(Mcpo):
    """MCPO (arXiv 2604.16972) with what its readers asked for: three options, all of them off by default.

    At its defaults it is `mcpo`; it is a method of its own so that runs of the paper's method keep their names. None of
    the three is in the paper.

    `mastery` below 1: with G rollouts a prompt of accuracy .95 is seen as mastered in one step and not in the next,
    so the hinge lets go of it half the time. Here the correct rollouts of prompts with p >= mastery are held; wrong
    ones are not, as there is nothing to preserve.

    `reweight_cap` above 0: at p = 1 - 1/G, Eq. 13 gives the one incorrect answer A = -G/2. The factor 1/(2 sqrt(p(1 -
    p))) is cut to the cap; W(p) falls below 1/2 where it is.

    `target_active` above 0: delta = .01 was chosen for one learning rate and engine; how much of the drift it permits
    depends on both. Here delta follows the share of mastered prompts' tokens that are outside of it: after each
    global step delta <- delta exp(rate min(share/target - 1, 1)). The state is delta.
    """

    name: ClassVar[str] = "mcpo_extended"
    uneven_groups: ClassVar[bool] = False
    columns: ClassVar[tuple[str, ...]] = ("mastered", "delta")

    mastery: float = dataclasses.field(default=1.0, metadata={"gt": 0.0, "le": 1.0})
    """Accuracy from which on the hinge holds the correct rollouts of a prompt; 1 is the paper's."""
    reweight_cap: float = dataclasses.field(default=0.0, metadata={"ge": 0.0})
    """The largest factor that Eq. 13 may put on an advantage; 0 is no limit, the paper's."""
    target_active: float = dataclasses.field(default=0.0, metadata={"ge": 0.0, "lt": 1.0})
    """Share of mastered prompts' tokens outside the drift budget that delta is moved towards; 0 leaves delta alone."""
    rate: float = dataclasses.field(default=0.2, metadata={"gt": 0.0, "le": 1.0})
    """The largest change of log delta after a global step."""

    def scale(self, p: Floats) -> Floats:
        """Eq. 13, at least 1/cap."""
        scale, minimum = super().scale(p), 1 / self.reweight_cap if self.reweight_cap else 0.0
        return (scale + minimum + abs(scale - minimum)) / 2

    def holds(self, step: Step) -> Tensor:
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
        """Move delta towards the target; a step without mastered prompts leaves it unchanged."""
        share = measured.get(ACTIVE)
        if not self.target_active or share is None:
            return state
        return {"delta": state["delta"] * math.exp(self.rate * min(share / self.target_active - 1, 1))}


PRIME = 65519
"""Cubing permutes the numbers below it, as 3 does not divide PRIME - 1."""


@dataclass(frozen=True)
class McpoPlacebo(Mcpo):
    """A control for MCPO's hinge (arXiv 2604.16972): the same penalty on prompts that mastery did not choose.

    Anything that slows a policy reduces what a step takes from any prompt. So less forgetting under the hinge is
    evidence for "consolidation" only if the hinge on mastered prompts keeps more than the same hinge elsewhere:

    - `held=random`: as many prompts of the step as are mastered, drawn at random, mastered or not;
    - `held=all`: every prompt.

    All rollouts of a held prompt are held, correct and incorrect. Eq. 11's mean is over the held rollouts, so the
    weight of the penalty as a whole is beta whichever prompts are held. Where MCPO's metrics say "mastered prompts",
    read "held".

    The control is ours; no paper has it. In all else it is `mcpo`.
    """

    name: ClassVar[str] = "mcpo_placebo"

    held: Literal["random", "all"] = "random"
    """Which prompts the hinge holds: as many at random as are mastered, or all."""

    @property
    def uneven_groups(self) -> bool:
        return self.held == "all"

    def holds(self, step: Step) -> Tensor:
        """Rollouts that the hinge holds, PG. The draw depends on the step's rollouts, not on the order of prompts."""
        mastered_PG = super().holds(step)
        if self.held == "all":
            return mastered_PG.new_ones(mastered_PG.shape)
        # The sum of lengths differs from step to step, so that a prompt that returns is held at some steps only.
        key_P = ((step.prompt_P + step.length_PG.sum()) % PRIME) ** 3 % PRIME
        drawn_N = key_P.sort().values[: int(mastered_PG[:, 0].sum())]
        return (key_P[:, None] == drawn_N).any(-1, keepdim=True).expand_as(mastered_PG)


@dataclass(frozen=True)
class Reweighted(Mcpo):
    """MCPO with knobs on the query weight, to tell apart why reweighting (Eq. 13) changes how fast a policy learns.

    A diagnostic, not a method to train with: at its defaults it is MCPO. The options take effect in their order on the
    advantage of `mcpo`: A' = A majority_weight where 1/2 < p < 1, then cut to +-clip_advantage, then scaled.
    """

    name: ClassVar[str] = "reweighted"

    majority_weight: float = dataclasses.field(default=1.0, metadata={"gt": 0.0})
    """Multiplies the advantages of prompts with 0.5 < p < 1."""
    clip_advantage: float = dataclasses.field(default=0.0, metadata={"ge": 0.0})
    """Advantages are cut to [-clip_advantage, clip_advantage]; 0 cuts nothing."""
    renormalise: bool = False
    """Scale all advantages of a batch so that the sum of mean_i |A_i| over its prompts is that of the plain advantages
    of Eq. 1: what remains is how the weight is distributed, not how much of it there is."""

    @property
    def uneven_groups(self) -> bool:
        return not self.renormalise

    @property
    def label(self) -> str:
        changes = {
            f"majority{self.majority_weight:g}": self.majority_weight != 1,
            f"clip{self.clip_advantage:g}": self.clip_advantage > 0,
            "renormalised": self.renormalise,
        }
        return "-".join([super().label, *(change for change, is_changed in changes.items() if is_changed)])

    def scale(self, p: Floats) -> Floats:
        """Eq. 13 divided by the weight of majority-correct prompts."""
        return super().scale(p) / (1 + (p > 0.5) * (p < 1) * (self.majority_weight - 1))

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """mean_i (c_i - p) A_i = p(1 - p)(A+ - A-) of a group with binary rewards: the factor of its gradient of p.

        Without a cut this is mean_i c_i A_i (Eq. 6). After a cut the mean advantage is not 0, so the sum over correct
        answers is not enough: at p > 0.5 the incorrect answers are cut. With `renormalise` the curve is correct up to
        a factor that depends on the batch.
        """
        weight, cut = super().query_weight(p, rollouts), self.clip_advantage
        if not cut:
            return weight
        # A+ = weight / p and A- = -weight / (1 - p), written without the divisions.
        return (1 - p) * _minimum(weight, p * cut) + p * _minimum(weight, (1 - p) * cut)

    def advantages(self, reward_PG: Tensor, correct_PG: Tensor) -> Tensor:
        """As in `GroupRelative.advantages`; with `renormalise` the groups must be one whole batch."""
        advantage_PG = super().advantages(reward_PG, correct_PG)
        if self.clip_advantage:
            advantage_PG = advantage_PG.clamp(-self.clip_advantage, self.clip_advantage)
        if not self.renormalise:
            return advantage_PG
        plain_method = Mcpo(reweight=False, ddof=self.ddof, degenerate=self.degenerate)
        total, target = advantage_PG.abs().sum(), plain_method.advantages(reward_PG, correct_PG).abs().sum()
        return advantage_PG * (target / total.where(total > 0, total + 1))


def _minimum(a: Floats, b: Floats) -> Floats:
    return (a + b - abs(a - b)) / 2
