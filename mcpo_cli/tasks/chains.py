"""What the tasks on chains of arithmetic over Z_11 share: one token a residue, prompts of one length.

The prompt is `x0 op x1 op ... xk _ _ =`; its trace is `v1`, ..., `vk`, the running value after each operator.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mcpo_cli.settings import identity
from mcpo_cli.tasks.base import BLANK, Limits
from mcpo_cli.tasks.drawn import RandomTask, ordered

MODULUS = 11
LONGEST = 8
"""Most operators of a problem."""
OPERATORS = "+-*"
EQUALS = "="
VALUES = tuple(str(value) for value in range(MODULUS))
APPLY: tuple[Callable[[int, int], int], ...] = (
    lambda a, b: (a + b) % MODULUS,
    lambda a, b: (a - b) % MODULUS,
    lambda a, b: (a * b) % MODULUS,
)


@dataclass(frozen=True)
class Chains(RandomTask):
    """A task on chains with k operators, k uniform."""

    min_ops: int = identity(1, ge=1, le=LONGEST)
    """Fewest operators of a training problem."""
    max_ops: int = identity(LONGEST, ge=2, le=LONGEST)
    """Most operators of a training problem."""

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

    def difficulty(self, prompt: str) -> int:
        """See `RandomTask`; the number of operators."""
        return sum(word in OPERATORS for word in prompt.split())

    def expected_tokens(self, max_response: int) -> tuple[float, float]:
        """See `Task`; a response that writes all k running values has 2k tokens."""
        return self.prompt_length, self.min_ops + self.max_ops

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        """See `Task`."""
        yield from ordered("min_ops", self.min_ops, "max_ops", self.max_ops)
        yield from super().contradictions(train)


def chain(rng: random.Random, length: int, skill: int = 0) -> tuple[str, list[str]]:
    """A chain of `length` operators, padded to `LONGEST`, and its trace. skill: places that the operators rotate."""
    value = rng.randrange(MODULUS)
    words, trace = [str(value)], []
    for _ in range(length):
        operator, operand = rng.randrange(len(OPERATORS)), rng.randrange(MODULUS)
        words += [OPERATORS[operator], str(operand)]
        value = APPLY[(operator + skill) % len(APPLY)](value, operand)
        trace.append(str(value))
    blanks = [BLANK] * (2 * (LONGEST - length))
    return " ".join([*words, *blanks, EQUALS]), trace
