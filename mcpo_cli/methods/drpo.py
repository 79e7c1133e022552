"""DRPO (arXiv 2510.04474): DisCO with right answers weighted by brevity.

As `disco` with `score=logl`, but the right rollouts of a group weigh in proportion to exp((1 - |y|/L_max)/brevity),
L_max the longest response that is allowed. Defaults: brevity .1 (released code), tau 10 and the constraint as in
`disco`. Edge cases: `disco`'s. Where responses are much shorter than L_max, or L_max is short, .1 nearly selects the
shortest right answer: raise it.

Reduction: brevity to infinity is `disco`. Checked: the weights equal the authors' function (executed). Neither verl
nor TRL has it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import Step
from mcpo_cli.methods.disco import Disco

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Drpo(Disco):
    """Decoupled Reward Policy Optimization."""

    name: ClassVar[str] = "drpo"

    score: Literal["logl"] = "logl"
    """s of a response: the mean log-probability of its tokens."""
    brevity: float = dataclasses.field(default=0.1, metadata={"gt": 0.0})
    """Temperature of the preference for short right answers, shares of L_max."""

    def right_share(self, step: Step) -> Tensor:
        """A softmax of brevity over the right rollouts of each group."""
        short_PG = -step.length_PG.double() / (step.limit * self.brevity)
        return short_PG.where(step.correct_PG.bool(), -1e9).softmax(-1) * step.correct_PG
