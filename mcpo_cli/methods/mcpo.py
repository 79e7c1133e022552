"""MCPO, and three methods that we derived from it: an extension, a control and a diagnostic."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import (
    AdvancedMethod,
    Floats,
    Need,
    Report,
    Signals,
    State,
    Step,
    Term,
    TokenBatch,
    TokenLoss,
)
from mcpo_cli.methods.group_relative import Clipped, Normalized

if TYPE_CHECKING:
    from torch import Tensor

DRIFT_EDGES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Upper ends of the bins of |d|, in units of delta; each sign has its own, except for the one around 0."""


def hinge_kl(d: Tensor, delta: float) -> Tensor:
    """phi(d) of Eq. 10, elementwise: 0 within [-delta, delta], k3(d) - k3(+-delta) beyond it.

    Args:
        d: log pi_theta - log pi_old of a token (Eq. 7), any shape. Its gradient is e^d - 1 outside the
            budget and 0 inside.
        delta: drift budget in nats, >= 0.
    """
    # expm1 keeps k3 exact for the small d this penalty is about: e^d - d - 1 cancels in float32.
    k3 = d.expm1() - d
    edge = (d * 0 + (math.expm1(delta) - delta)).where(d > 0, d * 0 + (math.expm1(-delta) + delta))
    return (k3 - edge).where(d.abs() > delta, d * 0)


def drift_bins() -> list[tuple[float, float]]:
    """The bins of the recorded drift as (low, high), in units of delta; the one in the middle holds 0."""
    edges = (*(-edge for edge in reversed(DRIFT_EDGES)), *DRIFT_EDGES)
    return list(zip((-math.inf, *edges), (*edges, math.inf), strict=True))


def drift_names() -> list[str]:
    """The name of each of the `drift_bins` in reports, where it is a count."""
    return [f"hinge/d_{number:02d}" for number in range(2 * len(DRIFT_EDGES) + 1)]


@dataclass(frozen=True)
class Mcpo(Clipped, Normalized, AdvancedMethod):
    """MCPO (arXiv 2604.16972): reweighted advantages (Eq. 12-14) and hinge-KL on mastered prompts (Eq. 7-11).

    Mastery-Consolidated Policy Optimization. Its ablations are configurations of it, not copies.
    """

    name: ClassVar[str] = "mcpo"
    columns: ClassVar[tuple[str, ...]] = ("mastered",)

    clip_high: float = dataclasses.field(default=0.28, metadata={"ge": 0.0})
    reweight: bool = True
    """Divide the advantage by scale(p) (Eq. 13); false is the ablation "w/o ReWeight"."""
    hinge: bool = True
    """Penalise drift on mastered prompts; false is the ablation "w/o Hinge-KL"."""
    beta: float = dataclasses.field(default=1.0, metadata={"ge": 0.0})
    """Weight of the penalty (Eq. 15)."""
    delta: float = dataclasses.field(default=0.01, metadata={"ge": 0.0})
    """Drift budget of a token (Eq. 10), nats."""
    anchor: Literal["rollout", "previous_step"] = "rollout"
    """pi_old of Eq. 7: the rollout policy, or the policy before the last optimizer step."""
    normalize: Literal["mastered", "all"] = "mastered"
    """The expectation over mastered prompts (Eq. 11) divides by the mastered sequences of the mini-batch, or by all."""

    @property
    def label(self) -> str:
        without = [name for name in ("hinge", "reweight") if not getattr(self, name)]
        return "-".join([self.name, *(f"wo-{name}" for name in without)])

    @property
    def penalises_drift(self) -> bool:
        """True if the loss has the hinge."""
        return self.hinge and self.beta > 0

    @property
    def needs(self) -> frozenset[Need]:
        wanted = self.penalises_drift and self.anchor == "previous_step"
        return frozenset({"previous_policy"} if wanted else ())

    @property
    def screens(self) -> bool:
        return self.penalises_drift

    def scale(self, p: Floats) -> Floats:
        """Eq. 13: 1 for p <= 0.5, otherwise 2 sqrt(p(1 - p))."""
        if not self.reweight:
            return super().scale(p)
        return 1 + (p > 0.5) * (2 * (p * (1 - p)) ** 0.5 - 1)

    def mastered(self, step: Step) -> Tensor:
        """Rollouts that the hinge holds, PG: all of the prompts with p = 1."""
        return step.correct_PG.bool().all(-1, keepdim=True).expand_as(step.correct_PG)

    def budget(self, batch: TokenBatch) -> float:
        """delta of Eq. 10 for the mini-batch of `batch`."""
        return self.delta

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """Rollouts of mastered prompts, which the column `mastered` flags, may have the gradient of the hinge."""
        signals, state = super().signals(step, state)
        mastered_PG = self.mastered(step)
        has_gradient_PG = signals.has_gradient_PG | mastered_PG if self.penalises_drift else signals.has_gradient_PG
        return dataclasses.replace(signals, has_gradient_PG=has_gradient_PG, columns={"mastered": mastered_PG}), state

    def has_gradient(self, batch: TokenBatch) -> Tensor:
        """Sequences with an advantage, and mastered ones with a token outside the drift budget."""
        return super().has_gradient(batch) | self._outside(batch).any(-1)

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        """The clipped surrogate, and beta times the hinge (Eq. 15)."""
        loss = super().token_loss(batch)
        if not self.penalises_drift:
            return loss
        sequences = batch.total.sums["mastered"] if self.normalize == "mastered" else batch.total.sequences
        weight_B = self.beta * batch.columns["mastered"] / (max(sequences, 1) * batch.length_B)
        return TokenLoss((*loss.terms, Term("hinge", hinge_kl(self._drift(batch), self.budget(batch)), weight_B)))

    def report(self, batch: TokenBatch) -> Report:
        """Activity of the hinge (`hinge/...`), and counts of tokens of mastered prompts by drift (`drift_bins`)."""
        report, mastered_B = super().report(batch), batch.columns["mastered"].bool()
        if not self.penalises_drift:
            return report
        outside_BT = self._outside(batch)
        tokens = (batch.mask_BT & mastered_B[:, None]).sum()
        sums = {"hinge/tokens_active": (outside_BT.sum(), tokens), **self._histogram(batch)}
        return Report({**report.sums, **sums}, {"hinge/prompts_felt": (outside_BT.any(-1), mastered_B)})

    def _drift(self, batch: TokenBatch) -> Tensor:
        """d_BT of Eq. 7."""
        anchor_BT = batch.logp_old_BT if batch.logp_previous_BT is None else batch.logp_previous_BT
        return batch.logp_BT - anchor_BT

    def _outside(self, batch: TokenBatch) -> Tensor:
        """Tokens of mastered prompts, BT, that have left the drift budget."""
        outside_BT: Tensor = self._drift(batch).abs() > self.budget(batch)
        return outside_BT & batch.mask_BT & batch.columns["mastered"].bool()[:, None]

    def _histogram(self, batch: TokenBatch) -> dict[str, tuple[Tensor, Tensor]]:
        d_N = self._drift(batch)[batch.mask_BT & batch.columns["mastered"].bool()[:, None]]
        # A value on an edge belongs to the inner bin, because the hinge is 0 for a token exactly at the budget.
        beyond_N = (d_N.abs()[:, None] > d_N.new_tensor(DRIFT_EDGES) * self.budget(batch)).sum(-1)
        bin_N = beyond_N * d_N.sign().long() + len(DRIFT_EDGES)
        count = bin_N.bincount(minlength=2 * len(DRIFT_EDGES) + 1)
        return {name: (number, number * 0) for name, number in zip(drift_names(), count, strict=True)}


@dataclass(frozen=True)
class McpoExtended(Mcpo):
    """MCPO (arXiv 2604.16972) with what its readers asked for: three options, all of them off by default.

    At its defaults it is `mcpo`; it is a method of its own so that runs of the paper's keep their names. None of the
    three is in the paper.

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
        """Move delta towards the target; a step without mastered prompts leaves it unchanged."""
        share = measured.get("hinge/tokens_active")
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

    def mastered(self, step: Step) -> Tensor:
        """Rollouts that the hinge holds, PG. The draw depends on the step's rollouts, not on the order of prompts."""
        mastered_PG = super().mastered(step)
        if self.held == "all":
            return mastered_PG.new_ones(mastered_PG.shape)
        # The sum of lengths differs from step to step, so that a prompt that returns is held at some steps only.
        key_P = ((step.prompt_P + step.length_PG.sum()) % PRIME) ** 3 % PRIME
        drawn_N = key_P.sort().values[: int(mastered_PG[:, 0].sum())]
        return (key_P[:, None] == drawn_N).any(-1, keepdim=True).expand_as(mastered_PG)


@dataclass(frozen=True)
class Reweighted(Mcpo):
    """MCPO with knobs on the query weight, to tell apart why reweighting (Eq. 13) changes how fast a policy learns.

    A diagnostic, not a method to train with: at its defaults it is MCPO. The options take effect in their order.
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
        return "-".join([super().label, *(change for change, made in changes.items() if made)])

    def scale(self, p: Floats) -> Floats:
        """Eq. 13 divided by the weight of majority-correct prompts."""
        return super().scale(p) / (1 + (p > 0.5) * (p < 1) * (self.majority_weight - 1))

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """mean_i (c_i - p) A_i = p(1 - p)(A+ - A-) of a group with binary rewards: the factor of its gradient of p.

        Without a cut this is mean_i c_i A_i (Eq. 6). After a cut the mean advantage is not 0, so that sum over correct
        answers is not enough: at p > 0.5 it is the incorrect ones that are cut. With `renormalise` the curve is correct
        up to a factor that depends on the batch.
        """
        weight, cut = super().query_weight(p, rollouts), self.clip_advantage
        if not cut:
            return weight
        # A+ = weight / p and A- = -weight / (1 - p), written without the divisions.
        return (1 - p) * _minimum(weight, p * cut) + p * _minimum(weight, (1 - p) * cut)

    def advantages(self, reward_PG: Tensor, correct_PG: Tensor) -> Tensor:
        """As in `Method.advantages`; with `renormalise` the groups must be those of one whole batch."""
        advantage_PG = super().advantages(reward_PG, correct_PG)
        if self.clip_advantage:
            advantage_PG = advantage_PG.clamp(-self.clip_advantage, self.clip_advantage)
        if not self.renormalise:
            return advantage_PG
        plain = Mcpo(reweight=False, ddof=self.ddof, degenerate=self.degenerate)
        total, wanted = advantage_PG.abs().sum(), plain.advantages(reward_PG, correct_PG).abs().sum()
        return advantage_PG * (wanted / total.where(total > 0, total + 1))


def _minimum(a: Floats, b: Floats) -> Floats:
    return (a + b - abs(a - b)) / 2
