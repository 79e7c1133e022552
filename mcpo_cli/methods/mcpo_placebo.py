"""A control for MCPO's hinge (arXiv 2604.16972): the same penalty on prompts that mastery did not choose.

Whatever holds a policy back lessens what a step takes from any prompt. So less forgetting under the hinge is evidence
for "consolidation" only if the hinge on mastered prompts keeps more than the same hinge elsewhere:

- `held=random`: as many prompts of the step as are mastered, drawn at random, mastered or not;
- `held=all`: every prompt.

All rollouts of a held prompt are held, right and wrong. Eq. 11's mean is over the held rollouts, so the weight of the
penalty as a whole is beta whichever prompts are held. Where MCPO's metrics say "mastered prompts", read "held".

The control is ours; no paper has it. In all else it is `mcpo`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import Step
from mcpo_cli.methods.mcpo import Mcpo

if TYPE_CHECKING:
    from torch import Tensor

PRIME = 65519
"""Cubing permutes the numbers below it, as 3 does not divide PRIME - 1."""


@dataclass(frozen=True)
class McpoPlacebo(Mcpo):
    """MCPO with its hinge on random or on all prompts instead of the mastered ones."""

    name: ClassVar[str] = "mcpo_placebo"

    held: Literal["random", "all"] = "random"
    """Which prompts the hinge holds: as many at random as are mastered, or all."""

    def mastered(self, step: Step) -> Tensor:
        """Rollouts that the hinge holds, PG. The draw depends on the step's rollouts, not on the order of prompts."""
        mastered_PG = super().mastered(step)
        if self.held == "all":
            return mastered_PG.new_ones(mastered_PG.shape)
        # The sum of lengths differs from step to step, so that a prompt that returns is held at some steps only.
        key_P = ((step.prompt_P + step.length_PG.sum()) % PRIME) ** 3 % PRIME
        drawn_N = key_P.sort().values[: int(mastered_PG[:, 0].sum())]
        return (key_P[:, None] == drawn_N).any(-1, keepdim=True).expand_as(mastered_PG)
