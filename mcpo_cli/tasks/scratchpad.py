"""Arithmetic chains whose answer may be reasoned out or said at once: `#### v`, after as many running values as wished.

Of `3 + 4 - 5 * 2 =`, `#### 4`, `7 #### 4` and `7 = 2 #### 4` are all right, and so is anything that ends in `#### 4`.
The base policy learns from demonstrations that either write every running value or answer at once, which is harder the
longer the chain is.
"""

import random
from dataclasses import dataclass

from mcpo_cli.data.base import Problem
from mcpo_cli.grading.simple import MARKER
from mcpo_cli.settings import identity
from mcpo_cli.tasks.chains import EQUALS, LONGEST, MODULUS, OPERATORS, VALUES, Chains, chain

TIERS = {"k2-3": (2, 3), "k4-5": (4, 5), "k6-8": (6, 8)}
"""Least and most operators of each held-out tier."""


@dataclass(frozen=True)
class Scratchpad(Chains):
    """Arithmetic chains over Z_11 with k operators; only the final answer is judged."""

    name = "scratchpad"
    grader = "final"
    one_right_response = False
    words = (EQUALS, MARKER, *OPERATORS, *VALUES)

    max_ops: int = identity(6, ge=2, le=LONGEST)
    """Most operators of a problem in training and warm-up."""
    warmup_reasoning: float = identity(0.6, ge=0, le=1)
    """Share of the demonstrations that write every running value; the others answer at once."""

    @property
    def title(self) -> str:
        """See `Task`."""
        return (
            f"scratchpad: chains modulo {MODULUS}, {self.min_ops} to {self.max_ops} operators, answered or reasoned out"
        )

    @property
    def tier_ranges(self) -> dict[str, tuple[int, int]]:
        """See `RandomTask`."""
        return TIERS

    def draw(self, rng: random.Random) -> Problem:
        """See `RandomTask`; the number of operators is uniform."""
        text, trace = chain(rng, rng.randint(self.min_ops, self.max_ops))
        return Problem(text, trace[-1])

    def draw_demonstration(self, rng: random.Random) -> Problem:
        """See `RandomTask`."""
        text, trace = chain(rng, rng.randint(self.min_ops, self.max_ops))
        written = trace[:-1] if rng.random() < self.warmup_reasoning else []
        return Problem(text, f"{f' {EQUALS} '.join(written)} {MARKER} {trace[-1]}".strip())

    def draw_of_tier(self, rng: random.Random, tier: str) -> Problem:
        """See `RandomTask`."""
        text, trace = chain(rng, rng.randint(*TIERS[tier]))
        return Problem(text, trace[-1])
