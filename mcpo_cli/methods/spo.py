"""SPO, Single-stream Policy Optimization (arXiv 2509.13232): a tracked value of each prompt as baseline, no group.

State of a prompt: a and b, the right and wrong answers that it is remembered for; v = a/(a + b). A = (r - v)
standardised over the rollouts of the global step, with v from before the step; A_PG. Then a and b fade, a = keep a +
right, b = keep b + wrong, keep = 2^(-D/half_life) within [keep_min, keep_max], D the KL divergence in nats between the
policy that last saw the prompt and that of now. The loss is PPO's clipped surrogate.

Defaults: half_life .06, [.875, .96], clip .2/.28 (independent re-implementations agree; the authors' recipe in verl
has no tracker). A new prompt starts at a + b = 1/(1 - keep_min), 8 by default, and the accuracy `start`; the paper
spends rollouts to find that. Edge cases: equal r - v give A = 0; groups with p = 0 or 1 bear. Prompts that never come
back leave REINFORCE with a constant baseline, so set `task.pool`. W(p) depends on the batch: no curve.

Disagreements: the paper has one rollout a prompt; here all G of a prompt see the same v and update it at once. D needs
the policy that last saw the prompt; it is not stored, and our stand-in is the change of the mean log-probability of
the prompt's responses since then. keep_min = keep_max forgets at a constant rate. The paper samples prompts by
sqrt(v(1 - v)); that changes the sampler and is left out. Not verified: the tracker was read in re-implementations
only. verl and TRL have none.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mcpo_cli.methods import prompt_memory
from mcpo_cli.methods.base import Need, Signals, State, Step
from mcpo_cli.methods.group_relative import Clipped, Standardized

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Spo(Clipped, Standardized):
    """Single-stream Policy Optimization."""

    name: ClassVar[str] = "spo"

    clip_high: float = dataclasses.field(default=0.28, metadata={"ge": 0.0})
    """The ratio is clipped above at 1 + clip_high."""
    half_life: float = dataclasses.field(default=0.06, metadata={"gt": 0.0})
    """The drift D, nats, that halves what is remembered."""
    keep_min: float = dataclasses.field(default=0.875, metadata={"ge": 0.0, "lt": 1.0})
    """The least share that is kept from visit to visit."""
    keep_max: float = dataclasses.field(default=0.96, metadata={"ge": 0.0, "le": 1.0})
    """The largest share that is kept; equal to keep_min, a constant rate."""
    start: float = dataclasses.field(default=0.5, metadata={"gt": 0.0, "lt": 1.0})
    """Accuracy that a prompt has before its first visit."""

    @property
    def uses_dead_groups(self) -> bool:
        return True

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"logp"} if self.keep_min < self.keep_max else ())

    def kept(self, drift_P: Tensor) -> Tensor:
        """The share of a and b that is kept after a drift of D, P."""
        return (-drift_P / self.half_life).exp2().clamp(self.keep_min, self.keep_max)

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        right_PG, weight = step.correct_PG.double(), 1 / (1 - self.keep_min)
        blank = {"a": weight * self.start, "b": weight * (1 - self.start), "logp": float("nan")}
        rows, place_P = prompt_memory.rows(state, step.prompt_P, blank)
        value_P = (rows["a"] / (rows["a"] + rows["b"]))[place_P]
        advantage_PG = self.standardized((step.reward_PG - value_P[:, None]).flatten()).view_as(right_PG)
        logp_P = value_P * 0
        if step.logp_PGT is not None:
            logp_P = (step.logp_PGT.double() * step.mask_PGT).sum((-1, -2)) / step.length_PG.sum(-1)
        keep = rows["a"] * 0 + 1
        keep[place_P] = self.kept((logp_P - rows["logp"][place_P]).abs().nan_to_num(0))
        rows["a"] = (rows["a"] * keep).index_add(0, place_P, right_PG.sum(-1))
        rows["b"] = (rows["b"] * keep).index_add(0, place_P, (1 - right_PG).sum(-1))
        rows["logp"][place_P] = logp_P
        return Signals(advantage_PG, advantage_PG != 0), rows
