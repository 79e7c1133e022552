"""Advantage sharpening of XRPO (arXiv 2510.06672): right answers that are unlikelier than their group's get a bonus.

A as in `grpo`; s the mean log-probability of a response's tokens under the rollout policy, eta = exp(s - mean s of the
group); right rollouts have A + min(max(bonus (1 - eta), 0), most A); A_PG. The loss is PPO's clipped surrogate.

Defaults: clip .2/.2; `bonus` and `most` are 1, a placeholder: the paper's lambda and kappa were not verified, nor was
the formula beyond a secondary source. Edge cases: A = 0 stays 0. Its allocator of rollouts and its in-context seeding
change the sampler and are left out. W(p) depends on log-probabilities: no curve. Neither verl nor TRL has it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from mcpo_cli.methods.base import Method, Need, Signals, State, Step
from mcpo_cli.methods.group_relative import Clipped, Normalized


@dataclass(frozen=True)
class Sharpen(Clipped, Normalized):
    """GRPO with XRPO's bonus for novel right answers."""

    name: ClassVar[str] = "sharpen"

    bonus: float = dataclasses.field(default=1.0, metadata={"ge": 0.0})
    """lambda: the bonus of a right answer of no likelihood."""
    most: float = dataclasses.field(default=1.0, metadata={"ge": 0.0})
    """kappa: the bonus is at most this part of the advantage."""

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"logp"})

    query_weight = Method.query_weight

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        assert step.logp_PGT is not None
        signals, state = super().signals(step, state)
        score_PG = (step.logp_PGT.double() * step.mask_PGT).sum(-1) / step.length_PG
        novelty_PG = 1 - (score_PG - score_PG.mean(-1, keepdim=True)).exp()
        gain_PG = (self.bonus * novelty_PG).clamp(min=0).minimum(self.most * signals.advantage.clamp(min=0))
        return dataclasses.replace(signals, advantage=signals.advantage + gain_PG * step.correct_PG), state
