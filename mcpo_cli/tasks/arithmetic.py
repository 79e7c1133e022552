"""Arithmetic chains over Z_11, one token per residue: a task that a tiny model learns on a laptop.

The prompt is `x0 op x1 op ... xk _ _ =` of fixed length; the answer is `v1 = v2 = ... = vk`, the running value after
each operator. With three skills, a leading token A, B or C rotates the meaning of the operators.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from mcpo_cli.data.base import Problem
from mcpo_cli.seeds import stream
from mcpo_cli.settings import identity
from mcpo_cli.tasks.base import BLANK, HELD_OUT_SHARE, ClosedTask, Limits, from_pool, held_out

MODULUS = 11
LONGEST = 8
"""Most operators of a problem."""
OPERATORS = "+-*"
SKILLS = "ABC"
EQUALS = "="
APPLY: tuple[Callable[[int, int], int], ...] = (
    lambda a, b: (a + b) % MODULUS,
    lambda a, b: (a - b) % MODULUS,
    lambda a, b: (a * b) % MODULUS,
)
TIERS = {"k2-3": (2, 3), "k5-6": (5, 6), "k7-8": (7, 8)}
"""Least and most operators of each held-out tier with one skill."""


@dataclass(frozen=True)
class Arithmetic(ClosedTask):
    """Arithmetic chains over Z_11 with k operators."""

    name = "arithmetic"
    words = (EQUALS, *OPERATORS, *SKILLS, *(str(value) for value in range(MODULUS)))
    held_out_rule = f"a problem is held out if its text hashes to 0 modulo {HELD_OUT_SHARE}, and only then"

    skills: Literal[1, 3] = identity(1)
    """Number of skills; with 3, the first token of a prompt rotates the meaning of the operators."""
    min_ops: int = identity(1, ge=1, le=LONGEST)
    """Fewest operators of a training problem."""
    max_ops: int = identity(LONGEST, ge=2, le=LONGEST)
    """Most operators of a training problem."""
    pool: int = identity(0, ge=0, le=8192)
    """Number of different training problems, repeated in each epoch; 0 always draws fresh ones."""
    warmup_max_ops: int = identity(6, ge=1, le=LONGEST)
    """Most operators of a warm-up demonstration; `max_ops` limits it too."""
    warmup_first_skill_share: float = identity(0.94, gt=0, le=1)
    """Share of skill A in the demonstrations if there are three skills."""

    @property
    def distinct_problems(self) -> int:
        """See `Task`."""
        return self.pool

    @property
    def title(self) -> str:
        """See `Task`."""
        skills = "one skill" if self.skills == 1 else f"{self.skills} skills"
        return f"arithmetic chains modulo {MODULUS}, {self.min_ops} to {self.max_ops} operators, {skills}"

    @property
    def tier_names(self) -> tuple[str, ...]:
        """See `ClosedTask`."""
        return tuple(TIERS) if self.skills == 1 else tuple(f"skill-{skill}" for skill in SKILLS)

    @property
    def prompt_length(self) -> int:
        """Tokens of operands, operators, blanks, the equals sign, and the skill if there are several."""
        return 2 * LONGEST + 2 + (self.skills > 1)

    @property
    def answer_length(self) -> int:
        """See `ClosedTask`."""
        return 2 * self.max_ops

    @property
    def held_out_answer_length(self) -> int:
        """See `ClosedTask`; with one skill, evaluation goes up to `LONGEST` operators regardless of training."""
        return self.answer_length if self.skills > 1 else 2 * LONGEST

    def expected_tokens(self, max_response: int) -> tuple[float, float]:
        """See `Task`; the number k of operators is uniform, and a right answer has 2k tokens."""
        return self.prompt_length, self.min_ops + self.max_ops

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        """See `Task`."""
        if self.min_ops > self.max_ops:
            yield (
                f"task.min_ops={self.min_ops} is larger than task.max_ops={self.max_ops}",
                f"task.min_ops={self.max_ops}",
            )
        yield from super().contradictions(train)
        if 0 < self.pool < train.prompts:
            yield (
                f"task.pool={self.pool} holds fewer prompts than one batch (train.prompts={train.prompts})",
                f"task.pool={train.prompts}  (or 0: fresh prompts)",
            )

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """See `Problems`; fresh problems, or the pool epoch by epoch."""
        if not self.pool:
            return [self._draw(random.Random(stream(seed, "data", i))) for i in range(start, start + count)]
        return from_pool(self._pool(seed), seed, start, count)

    def demonstrations(self, seed: int, step: int, count: int) -> list[Problem]:
        """See `ClosedTask`."""
        rng = random.Random(stream(seed, "warmup", step))
        longest = min(self.warmup_max_ops, self.max_ops)
        share = self.warmup_first_skill_share
        weights = [1.0] if self.skills == 1 else [share, (1 - share) / 2, (1 - share) / 2]
        problems: list[Problem] = []
        while len(problems) < count:
            (skill,) = rng.choices(range(self.skills), weights)
            problem = self._make(rng, rng.randint(1, longest), skill)
            if not held_out(problem):
                problems.append(problem)
        return problems

    def tiers(self, count: int) -> dict[str, list[Problem]]:
        """See `Problems`; the tiers of `TIERS`, or one tier per skill."""
        if self.skills == 1:
            ranges = {name: (low, high, 0) for name, (low, high) in TIERS.items()}
        else:
            ranges = {name: (self.min_ops, self.max_ops, skill) for skill, name in enumerate(self.tier_names)}
        tiers = {}
        for name, (low, high, skill) in ranges.items():
            rng = random.Random(f"{name}:{low}:{high}")
            problems: dict[str, Problem] = {}
            while len(problems) < count:
                problem = self._make(rng, rng.randint(low, high), skill)
                if held_out(problem):
                    problems[problem.text] = problem
            tiers[name] = list(problems.values())
        return tiers

    def _pool(self, seed: int) -> list[Problem]:
        rng = random.Random(stream(seed, "pool"))
        problems: dict[str, Problem] = {}
        while len(problems) < self.pool:
            problem = self._draw(rng)
            problems[problem.text] = problem
        return list(problems.values())

    def _draw(self, rng: random.Random) -> Problem:
        """One training problem, with uniform number of operators and skill; never a held-out one."""
        while True:
            length = rng.randint(self.min_ops, self.max_ops)
            problem = self._make(rng, length, rng.randrange(self.skills))
            if not held_out(problem):
                return problem

    def _make(self, rng: random.Random, length: int, skill: int) -> Problem:
        value = rng.randrange(MODULUS)
        prompt = [SKILLS[skill]] * (self.skills > 1) + [str(value)]
        trace = []
        for _ in range(length):
            operator, operand = rng.randrange(len(OPERATORS)), rng.randrange(MODULUS)
            prompt += [OPERATORS[operator], str(operand)]
            value = APPLY[(operator + skill) % len(APPLY)](value, operand)
            trace.append(str(value))
        blanks = [BLANK] * (2 * (LONGEST - length))
        return Problem(" ".join([*prompt, *blanks, EQUALS]), f" {EQUALS} ".join(trace))
