"""MCPO as the paper has it (arXiv 2604.16972): mastered prompts are held by a hinge, rewards reweighted."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import (
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
from mcpo_cli.methods.group_relative import ONE_STEP, Clipped, Normalized
from mcpo_cli.methods.settings import TrainSettings

if TYPE_CHECKING:
    from torch import Tensor

OF_HINGE = ("beta", "delta", "anchor", "normalize")
"""The options of the hinge."""
FELT, ACTIVE, DRIFT = "hinge/prompts_felt", "hinge/tokens_active", "hinge/drift_sum"
"""Metrics of a mini-batch: its mastered prompts and their tokens outside the drift budget, the sum of their |d|."""


def hinge_kl(d: Tensor, delta: float) -> Tensor:
    """phi(d) of Eq. 10, elementwise: 0 within [-delta, delta], k3(d) - k3(+-delta) beyond it.

    Args:
        d: log pi_theta - log pi_old of a token (Eq. 7), any shape. Its gradient is e^d - 1 outside the
            budget and 0 inside.
        delta: drift budget in nats, >= 0.
    """
    # With expm1, k3 loses fewer digits at the small d that this penalty is about than e^d - d - 1 does.
    k3 = d.expm1() - d
    edge = (d * 0 + (math.expm1(delta) - delta)).where(d > 0, d * 0 + (math.expm1(-delta) + delta))
    return (k3 - edge).where(d.abs() > delta, d * 0)


@dataclass(frozen=True)
class Mcpo(Clipped, Normalized):
    """MCPO (arXiv 2604.16972): reweighted advantages (Eq. 12-14) and hinge-KL on mastered prompts (Eq. 7-11).

    Mastery-Consolidated Policy Optimization. Its ablations are configurations of it, not copies. With the advantage A
    of `grpo`, the share p of a prompt's rollouts that are correct, and d = log(pi / pi_old) of a token:

        A' = A / s(p), s(p) = 2 sqrt(p (1 - p)) for p > 1/2, else 1
        phi(d) = k(d) - k(+-delta) for |d| > delta, else 0, with k(d) = e^d - d - 1
        loss = -min(q A', clip(q) A') + beta h, with q = e^d
        h = mean of phi(d) over the tokens of a rollout, then over the rollouts of mastered prompts (p = 1)
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
        ablations = [name for name in ("hinge", "reweight") if not getattr(self, name)]
        return "-".join([self.name, *(f"wo-{name}" for name in ablations)])

    @property
    def penalises_drift(self) -> bool:
        """True if the loss has the hinge."""
        return self.hinge and self.beta > 0

    @property
    def needs(self) -> frozenset[Need]:
        needs_previous = self.penalises_drift and self.anchor == "previous_step"
        return frozenset({"previous_policy"} if needs_previous else ())

    @property
    def screens(self) -> bool:
        return self.penalises_drift

    def without_effect(self, train: TrainSettings) -> Iterator[str]:
        """Yields where the hinge cannot act: in the only gradient step of a global step no token has drifted yet."""
        yield from super().without_effect(train)
        if self.penalises_drift and self.anchor == "rollout" and train.mini_batch == train.prompts:
            yield f"{ONE_STEP}, the hinge cannot act: no effect of method.hinge, method.beta and method.delta"
        elif not self.penalises_drift:
            override, names = ("hinge=false", OF_HINGE) if not self.hinge else ("beta=0", OF_HINGE[1:])
            if changed := [f"method.{name}" for name in names if getattr(self, name) != getattr(type(self), name)]:
                yield f"method.{override} leaves the hinge out: no effect of {', '.join(changed)}"

    def scale(self, p: Floats) -> Floats:
        """Eq. 13: 1 for p <= 0.5, otherwise 2 sqrt(p(1 - p))."""
        if not self.reweight:
            return super().scale(p)
        return 1 + (p > 0.5) * (2 * (p * (1 - p)) ** 0.5 - 1)

    def holds(self, step: Step) -> Tensor:
        """held_PG: the rollouts that the hinge holds, which are all rollouts of prompts with p = 1."""
        return step.correct_PG.bool().all(-1, keepdim=True).expand_as(step.correct_PG)

    def budget(self, batch: TokenBatch) -> float:
        """delta of Eq. 10 for the mini-batch of `batch`."""
        return self.delta

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """Rollouts of mastered prompts, which the column `mastered` flags, may have the gradient of the hinge."""
        signals, state = super().signals(step, state)
        mastered_PG = self.holds(step)
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
        """Activity of the hinge (`hinge/...`); the sum of the drift |d| of mastered tokens, nats, is a count."""
        report, mastered_B = super().report(batch), batch.columns["mastered"].bool()
        if not self.penalises_drift:
            return report
        outside_BT, mastered_BT = self._outside(batch), batch.mask_BT & mastered_B[:, None]
        tokens, drift = mastered_BT.sum(), self._drift(batch)[mastered_BT].abs().sum()
        sums = {ACTIVE: (outside_BT.sum(), tokens), DRIFT: (drift, tokens * 0)}
        return Report({**report.sums, **sums}, {FELT: (outside_BT.any(-1), mastered_B)})

    def _drift(self, batch: TokenBatch) -> Tensor:
        """d_BT of Eq. 7."""
        anchor_BT = batch.logp_old_BT if batch.logp_previous_BT is None else batch.logp_previous_BT
        return batch.logp_BT - anchor_BT

    def _outside(self, batch: TokenBatch) -> Tensor:
        """Tokens of mastered prompts, BT, that have left the drift budget."""
        outside_BT: Tensor = self._drift(batch).abs() > self.budget(batch)
        return outside_BT & batch.mask_BT & batch.columns["mastered"].bool()[:, None]
