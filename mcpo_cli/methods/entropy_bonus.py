"""Entropy-shaped advantages (arXiv 2506.14758): uncertain tokens get a bonus, at most a part of their advantage.

A as in `grpo`; A_t = A + min(alpha H_t, |A|/kappa), H_t the entropy in nats under the rollout policy, without a
gradient. A_PGT. The loss is PPO's clipped surrogate.

Defaults: alpha .4, kappa 2 (from memory, not verified), clip .2/.28 as in DAPO. Edge cases: A = 0 stays 0, so nothing
happens in dead groups; with kappa > 1 no sign changes. Reduction: alpha = 0 is `grpo` with this clipping. Published as
an addition to any method; here it is one of its own. Checked: the paper was read, no code executed. Neither verl 0.9.1
nor TRL has it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from mcpo_cli.methods.base import Method, Need, Signals, State, Step
from mcpo_cli.methods.group_relative import Clipped, Normalized


@dataclass(frozen=True)
class EntropyBonus(Clipped, Normalized):
    """GRPO with a bonus for uncertain tokens."""

    name: ClassVar[str] = "entropy_bonus"
    token_advantages: ClassVar[bool] = True

    clip_high: float = dataclasses.field(default=0.28, metadata={"ge": 0.0})
    """The ratio is clipped above at 1 + clip_high."""
    alpha: float = dataclasses.field(default=0.4, metadata={"ge": 0.0})
    """The bonus a nat of entropy."""
    kappa: float = dataclasses.field(default=2.0, metadata={"gt": 1.0})
    """The bonus is at most |A|/kappa."""

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"entropy"})

    query_weight = Method.query_weight

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        assert step.entropy_PGT is not None
        signals, state = super().signals(step, state)
        A_PG1 = signals.advantage[..., None]
        bonus_PGT = (self.alpha * step.entropy_PGT.double()).minimum(A_PG1.abs() / self.kappa)
        return Signals((A_PG1 + bonus_PGT) * step.mask_PGT, signals.bears_PG), state
