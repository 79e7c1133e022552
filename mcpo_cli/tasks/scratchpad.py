"""Arithmetic chains whose answer may be reasoned out or said at once: `#### v`, after as many running values as wished.

The prompt is that of `arithmetic`. Of `3 + 4 - 5 * 2 =`, `#### 4`, `7 #### 4` and `7 = 2 #### 4` are all right, and so
is anything that ends in `#### 4`. The base policy learns from demonstrations that stop reasoning early: the more of a
chain is left for the last step, the harder that step is.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from mcpo_cli.data.base import Problem
from mcpo_cli.grading.graders.final import MARKER
from mcpo_cli.settings import identity
from mcpo_cli.tasks.arithmetic import EQUALS, LONGEST, MODULUS, OPERATORS, chain
from mcpo_cli.tasks.base import Limits, RandomTask, ordered

TIERS = {"k2-3": (2, 3), "k4-5": (4, 5), "k6-8": (6, 8)}
"""Least and most operators of each held-out tier."""


@dataclass(frozen=True)
class Scratchpad(RandomTask):
    """Arithmetic chains over Z_11 with k operators; only the final answer is judged."""

    name = "scratchpad"
    grader = "final"
    one_right_response = False
    words = (EQUALS, MARKER, *OPERATORS, *(str(value) for value in range(MODULUS)))

    min_ops: int = identity(1, ge=1, le=LONGEST)
    """Fewest operators of a problem in training and warm-up."""
    max_ops: int = identity(6, ge=2, le=LONGEST)
    """Most operators of a problem in training and warm-up."""
    warmup_reasoning: float = identity(0.6, ge=0, le=1)
    """Probability that a demonstration writes the next running value rather than answers."""

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

    @property
    def prompt_length(self) -> int:
        """Tokens of operands, operators, blanks and the equals sign."""
        return 2 * LONGEST + 2

    @property
    def answer_length(self) -> int:
        """See `ClosedTask`; all running values, with something between two of them, and the end token."""
        return 2 * self.max_ops

    @property
    def held_out_answer_length(self) -> int:
        """See `ClosedTask`; evaluation goes up to `LONGEST` operators regardless of training."""
        return 2 * LONGEST

    def expected_tokens(self, max_response: int) -> tuple[float, float]:
        """See `Task`; of a response that reasons all the way, with uniform number of operators."""
        return self.prompt_length, self.min_ops + self.max_ops

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        """See `Task`."""
        yield from ordered("min_ops", self.min_ops, "max_ops", self.max_ops)
        yield from super().contradictions(train)

    def draw(self, rng: random.Random) -> Problem:
        """See `RandomTask`; the number of operators is uniform."""
        text, trace = chain(rng, rng.randint(self.min_ops, self.max_ops))
        return Problem(text, trace[-1])

    def draw_demonstration(self, rng: random.Random) -> Problem:
        """See `RandomTask`; reasoning stops before each running value with the same probability."""
        text, trace = chain(rng, rng.randint(self.min_ops, self.max_ops))
        written = 0
        while written < len(trace) - 1 and rng.random() < self.warmup_reasoning:
            written += 1
        return Problem(text, f"{f' {EQUALS} '.join(trace[:written])} {MARKER} {trace[-1]}".strip())

    def draw_of_tier(self, rng: random.Random, tier: str) -> Problem:
        """See `RandomTask`."""
        text, trace = chain(rng, rng.randint(*TIERS[tier]))
        return Problem(text, trace[-1])
