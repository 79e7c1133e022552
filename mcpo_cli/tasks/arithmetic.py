"""Arithmetic chains over Z_11 whose every running value is asked for: a task that a tiny model learns on a laptop.

The answer to a chain (`chains.py`) is `v1 = v2 = ... = vk`. With three skills, a leading token A, B or C rotates the
meaning of the operators.
"""

import random
from dataclasses import dataclass
from typing import Literal

from mcpo_cli.data.base import Problem
from mcpo_cli.settings import identity
from mcpo_cli.tasks.chains import EQUALS, LONGEST, MODULUS, OPERATORS, VALUES, Chains, chain

SKILLS = "ABC"
TIERS = {"k2-3": (2, 3), "k5-6": (5, 6), "k7-8": (7, 8)}
"""Least and most operators of each held-out tier with one skill."""


@dataclass(frozen=True)
class Arithmetic(Chains):
    """Arithmetic chains over Z_11 with k operators."""

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
        """See `Task`."""
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
        """See `RandomTask`."""
        share = self.warmup_first_skill_share
        weights = [1.0] if self.skills == 1 else [share, (1 - share) / 2, (1 - share) / 2]
        (skill,) = rng.choices(range(self.skills), weights)
        return self._make(rng, rng.randint(1, min(self.warmup_max_ops, self.max_ops)), skill)

    def draw_of_tier(self, rng: random.Random, tier: str) -> Problem:
        """See `RandomTask`."""
        skill = 0 if self.skills == 1 else self.tier_names.index(tier)
        return self._make(rng, rng.randint(*self.tier_ranges[tier]), skill)

    def _make(self, rng: random.Random, length: int, skill: int) -> Problem:
        text, trace = chain(rng, length, skill)
        return Problem(f"{SKILLS[skill]} {text}" if self.skills > 1 else text, f" {EQUALS} ".join(trace))
