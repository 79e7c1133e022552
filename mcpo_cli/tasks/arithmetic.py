"""Chains over Z_11, one token a residue: the task a tiny model learns on a laptop.

Prompt `x0 op x1 op ... xk _ _ =` of fixed length, answer `v1 = v2 = ... = vk`: the running value after
each operator. With three skills a leading token A, B or C rotates what the operators mean.
"""

import random
import zlib
from collections.abc import Callable

from mcpo_cli.config.schema import Task, Warmup
from mcpo_cli.data.base import Problem
from mcpo_cli.seeds import stream
from mcpo_cli.tasks.base import from_pool

MODULUS = 11
LONGEST = 8
OPERATORS = "+-*"
SKILLS = "ABC"
BLANK, EQUALS, EOS = "_", "=", "<eos>"
APPLY: tuple[Callable[[int, int], int], ...] = (
    lambda a, b: (a + b) % MODULUS,
    lambda a, b: (a - b) % MODULUS,
    lambda a, b: (a * b) % MODULUS,
)
HELD_OUT_SHARE = 8
"""One problem in this many, by a hash of its text, is never trained on."""


class Arithmetic:
    """The task with the settings of `task` and, for the warm-up's demonstrations, of `warmup`."""

    vocabulary = (EOS, BLANK, EQUALS, *OPERATORS, *SKILLS, *(str(value) for value in range(MODULUS)))

    def __init__(self, task: Task, warmup: Warmup) -> None:
        self.task = task
        self.warmup = warmup

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """Problems `start` to `start + count` of the endless stream: fresh ones, or a pool epoch by epoch."""
        if not self.task.pool:
            return [self._draw(random.Random(stream(seed, "data", i))) for i in range(start, start + count)]
        return from_pool(self._pool(seed), seed, start, count)

    def demonstrations(self, seed: int, step: int, count: int) -> list[Problem]:
        """The problems of warm-up step `step`; skill A has `warmup.first_skill_share` of them."""
        rng = random.Random(stream(seed, "warmup", step))
        longest = min(self.warmup.max_ops, self.task.max_ops)
        share = self.warmup.first_skill_share
        weights = [1.0] if self.task.skills == 1 else [share, (1 - share) / 2, (1 - share) / 2]
        problems: list[Problem] = []
        while len(problems) < count:
            (skill,) = rng.choices(range(self.task.skills), weights)
            problem = self._make(rng, rng.randint(1, longest), skill)
            if not held_out(problem):
                problems.append(problem)
        return problems

    def tiers(self, count: int) -> dict[str, list[Problem]]:
        """Held-out problems: k = 2-3, 5-6 and 7-8 operators, or one tier a skill."""
        if self.task.skills == 1:
            ranges = {f"k{low}-{high}": (low, high, 0) for low, high in ((2, 3), (5, 6), (7, 8))}
        else:
            ranges = {f"skill-{SKILLS[i]}": (self.task.min_ops, self.task.max_ops, i) for i in range(self.task.skills)}
        tiers = {}
        for name, (low, high, skill) in ranges.items():
            rng = random.Random(f"{name}:{low}:{high}")
            found: dict[str, Problem] = {}
            while len(found) < count:
                problem = self._make(rng, rng.randint(low, high), skill)
                if held_out(problem):
                    found[problem.text] = problem
            tiers[name] = list(found.values())
        return tiers

    def _pool(self, seed: int) -> list[Problem]:
        rng = random.Random(stream(seed, "pool"))
        found: dict[str, Problem] = {}
        while len(found) < self.task.pool:
            problem = self._draw(rng)
            found[problem.text] = problem
        return list(found.values())

    def _draw(self, rng: random.Random) -> Problem:
        """One training problem: k and skill uniform, never a held-out one."""
        while True:
            length = rng.randint(self.task.min_ops, self.task.max_ops)
            problem = self._make(rng, length, rng.randrange(self.task.skills))
            if not held_out(problem):
                return problem

    def _make(self, rng: random.Random, length: int, skill: int) -> Problem:
        value = rng.randrange(MODULUS)
        prompt = [SKILLS[skill]] * (self.task.skills > 1) + [str(value)]
        trace = []
        for _ in range(length):
            operator, operand = rng.randrange(len(OPERATORS)), rng.randrange(MODULUS)
            prompt += [OPERATORS[operator], str(operand)]
            value = APPLY[(operator + skill) % len(APPLY)](value, operand)
            trace.append(str(value))
        blanks = [BLANK] * (2 * (LONGEST - length))
        return Problem(" ".join([*prompt, *blanks, EQUALS]), f" {EQUALS} ".join(trace))


def prompt_length(task: Task) -> int:
    """Tokens of every prompt: operands, operators and blanks, the equals sign, the skill if there are several."""
    return 2 * LONGEST + 2 + (task.skills > 1)


def held_out(problem: Problem) -> bool:
    """Whether the problem belongs to evaluation: decided by its text alone, so no list has to agree."""
    return zlib.crc32(problem.text.encode()) % HELD_OUT_SHARE == 0
