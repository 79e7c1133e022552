"""Palindromes: put given letters into an order that reads the same in both directions.

The prompt is `a a b c c _ _ _ _ =`, letters in alphabetical order; `a c b c a` and `c a b a c` are right. A problem has
many right answers, all of one length. The rules follow `palindrome_generation` of reasoning-gym
(https://github.com/open-thought/reasoning-gym), with a token a letter; letters in order make a problem one prompt.
"""

import random
import string
from collections.abc import Iterator
from dataclasses import dataclass

from mcpo_cli.data.base import Problem
from mcpo_cli.settings import identity
from mcpo_cli.tasks.base import BLANK, Limits
from mcpo_cli.tasks.drawn import RandomTask, ordered

LONGEST = 9
"""Most letters of a problem."""
EQUALS = "="
TIERS = {"n4-5": (4, 5), "n6-7": (6, 7), "n8-9": (8, 9)}
"""Least and most letters of each held-out tier."""


@dataclass(frozen=True)
class Palindrome(RandomTask):
    """Palindromes of given letters."""

    name = "palindrome"
    grader = "palindrome"
    one_right_response = False
    words = (EQUALS, *string.ascii_lowercase)

    min_letters: int = identity(4, ge=2, le=LONGEST)
    """Fewest letters of a problem in training and warm-up."""
    max_letters: int = identity(8, ge=5, le=LONGEST)
    """Most letters of a problem in training and warm-up."""

    @property
    def title(self) -> str:
        """See `Task`."""
        return f"palindromes of {self.min_letters} to {self.max_letters} letters"

    @property
    def tier_ranges(self) -> dict[str, tuple[int, int]]:
        """See `RandomTask`."""
        return TIERS

    @property
    def prompt_length(self) -> int:
        """Tokens of letters, blanks and the equals sign."""
        return LONGEST + 1

    @property
    def answer_length(self) -> int:
        """See `ClosedTask`."""
        return self.max_letters + 1

    @property
    def held_out_answer_length(self) -> int:
        """See `ClosedTask`; evaluation goes up to `LONGEST` letters regardless of training."""
        return LONGEST + 1

    def expected_tokens(self, max_response: int) -> tuple[float, float]:
        """See `Task`; the number of letters is uniform."""
        return self.prompt_length, (self.min_letters + self.max_letters) / 2 + 1

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        """See `Task`."""
        yield from ordered("min_letters", self.min_letters, "max_letters", self.max_letters)
        yield from super().contradictions(train)

    def difficulty(self, prompt: str) -> int:
        """See `RandomTask`; the letters given."""
        return sum(word not in (BLANK, EQUALS) for word in prompt.split())

    def draw(self, rng: random.Random) -> Problem:
        """See `RandomTask`; the number of letters is uniform."""
        palindrome = _palindrome(rng, rng.randint(self.min_letters, self.max_letters))
        return _problem(palindrome, " ".join(sorted(palindrome)))

    def draw_demonstration(self, rng: random.Random) -> Problem:
        """See `RandomTask`; one palindrome of the letters, with no preference."""
        palindrome = _palindrome(rng, rng.randint(self.min_letters, self.max_letters))
        return _problem(palindrome, " ".join(palindrome))

    def draw_of_tier(self, rng: random.Random, tier: str) -> Problem:
        """See `RandomTask`."""
        palindrome = _palindrome(rng, rng.randint(*TIERS[tier]))
        return _problem(palindrome, " ".join(sorted(palindrome)))


def _palindrome(rng: random.Random, length: int) -> list[str]:
    half = rng.choices(string.ascii_lowercase, k=(length + 1) // 2)
    return half + half[: length // 2][::-1]


def _problem(palindrome: list[str], gold: str) -> Problem:
    blanks = [BLANK] * (LONGEST - len(palindrome))
    return Problem(" ".join([*sorted(palindrome), *blanks, EQUALS]), gold)
