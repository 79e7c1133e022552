"""Chains of arithmetic over Z_11, one token a residue: `arithmetic` and `scratchpad`.

The prompt is `x0 op x1 op ... xk _ _ =`; its trace is `v1`, ..., `vk`, the running value after each operator.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from mcpo_cli.data.base import Problem
from mcpo_cli.grading.simple import MARKER
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


SKILLS = "ABC"
TIERS = {"k2-3": (2, 3), "k5-6": (5, 6), "k7-8": (7, 8)}
"""Minimum and maximum operators of each held-out tier with one skill."""


@dataclass(frozen=True)
class Arithmetic(Chains):
    """Arithmetic chains over Z_11 with k operators whose every running value is asked for: `v1 = v2 = ... = vk`.

    A tiny model learns it on a laptop. With three skills, a leading token A, B or C rotates the meaning of the
    operators.
    """

    name = "arithmetic"
    grader = "trace"
    words = (EQUALS, *OPERATORS, *SKILLS, *VALUES)

    skills: Literal[1, 3] = identity(1)
    """Number of skills; with 3, the first token of a prompt rotates the meaning of the operators."""
    warmup_max_ops: int = identity(6, ge=1, le=LONGEST)
    """Most operators of a warm-up demonstration; `max_ops` limits it too."""
    warmup_first_skill_share: float = identity(0.94, gt=0, le=1)
    """Share of skill A in the demonstrations if there are three skills."""

    @property
    def title(self) -> str:
        skills = "one skill" if self.skills == 1 else f"{self.skills} skills"
        return f"arithmetic chains modulo {MODULUS}, {self.min_ops} to {self.max_ops} operators, {skills}"

    @property
    def tier_ranges(self) -> dict[str, tuple[int, int]]:
        """See `RandomTask`: operators; one tier per skill if there are several."""
        if self.skills == 1:
            return TIERS
        return {f"skill-{skill}": (self.min_ops, self.max_ops) for skill in SKILLS}

    @property
    def prompt_length(self) -> int:
        """See `Chains`; and the skill if there are several."""
        return super().prompt_length + (self.skills > 1)

    @property
    def held_out_answer_length(self) -> int:
        """See `ClosedTask`; with several skills, evaluation is as long as training."""
        return self.answer_length if self.skills > 1 else super().held_out_answer_length

    def tier_of(self, prompt: str) -> str:
        """See `RandomTask`; with several skills, a tier is a skill."""
        return super().tier_of(prompt) if self.skills == 1 else f"skill-{prompt.split(maxsplit=1)[0]}"

    def draw(self, rng: random.Random) -> Problem:
        """See `RandomTask`; number of operators and skill are uniform."""
        return self._make(rng, rng.randint(self.min_ops, self.max_ops), rng.randrange(self.skills))

    def draw_demonstration(self, rng: random.Random) -> Problem:
        share = self.warmup_first_skill_share
        weights = [1.0] if self.skills == 1 else [share, (1 - share) / 2, (1 - share) / 2]
        (skill,) = rng.choices(range(self.skills), weights)
        return self._make(rng, rng.randint(1, min(self.warmup_max_ops, self.max_ops)), skill)

    def draw_of_tier(self, rng: random.Random, tier: str) -> Problem:
        skill = 0 if self.skills == 1 else self.tier_names.index(tier)
        return self._make(rng, rng.randint(*self.tier_ranges[tier]), skill)

    def _make(self, rng: random.Random, length: int, skill: int) -> Problem:
        text, trace = chain(rng, length, skill)
        return Problem(f"{SKILLS[skill]} {text}" if self.skills > 1 else text, f" {EQUALS} ".join(trace))


SCRATCHPAD_TIERS = {"k2-3": (2, 3), "k4-5": (4, 5), "k6-8": (6, 8)}
"""Minimum and maximum operators of each held-out tier."""


@dataclass(frozen=True)
class Scratchpad(Chains):
    """Arithmetic chains over Z_11 with k operators; only the final answer is judged, after as much reasoning as wished.

    Of `3 + 4 - 5 * 2 =`, `#### 4`, `7 #### 4` and `7 = 2 #### 4` are all correct, and so is anything that ends in `####
    4`. The base policy learns from demonstrations that either write every running value or answer at once, which is
    harder the longer the chain is.
    """

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
        return (
            f"scratchpad: chains modulo {MODULUS}, {self.min_ops} to {self.max_ops} operators, answered or reasoned out"
        )

    @property
    def tier_ranges(self) -> dict[str, tuple[int, int]]:
        return SCRATCHPAD_TIERS

    def draw(self, rng: random.Random) -> Problem:
        """See `RandomTask`; the number of operators is uniform."""
        text, trace = chain(rng, rng.randint(self.min_ops, self.max_ops))
        return Problem(text, trace[-1])

    def draw_demonstration(self, rng: random.Random) -> Problem:
        text, trace = chain(rng, rng.randint(self.min_ops, self.max_ops))
        steps = trace[:-1] if rng.random() < self.warmup_reasoning else []
        return Problem(text, f"{f' {EQUALS} '.join(steps)} {MARKER} {trace[-1]}".strip())

    def draw_of_tier(self, rng: random.Random, tier: str) -> Problem:
        text, trace = chain(rng, rng.randint(*SCRATCHPAD_TIERS[tier]))
        return Problem(text, trace[-1])
