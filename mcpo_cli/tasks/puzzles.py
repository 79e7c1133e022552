"""Puzzles with several correct answers to a problem: `countdown` and `palindrome`."""

import itertools
import random
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mcpo_cli.data.base import Problem
from mcpo_cli.settings import identity
from mcpo_cli.tasks.base import BLANK, Limits
from mcpo_cli.tasks.drawn import RandomTask, ordered

MOST = 5
"""Most numbers of a problem."""
LARGEST = 99
"""Largest number or target; each has its own token."""
COLON, EQUALS = ":", "="
TIERS = {"n3": (3, 3), "n4": (4, 4), "n5": (5, 5)}
"""Minimum and maximum count of the given numbers in each held-out tier."""


@dataclass(frozen=True)
class Countdown(RandomTask):
    """Reach a target from given numbers by + - * / and parentheses, each number at most once.

    The prompt is `3 5 8 _ _ : 24 =`, numbers in ascending order; `( 8 - 5 ) * 8` uses 8 twice and is incorrect, `3 * 8`
    is correct. Each problem can be solved in positive integers. Correct answers differ in length and form; the grader
    `countdown` checks them.
    """

    name = "countdown"
    grader = "countdown"
    one_right_response = False
    words = (EQUALS, COLON, *"+-*/()", *(str(value) for value in range(1, LARGEST + 1)))

    min_numbers: int = identity(3, ge=3, le=MOST)
    """Fewest numbers of a problem in training and warm-up."""
    max_numbers: int = identity(4, ge=3, le=MOST)
    """Most numbers of a problem in training and warm-up."""
    largest: int = identity(20, ge=15, le=LARGEST)
    """Largest number given; targets go up to 99."""

    @property
    def title(self) -> str:
        return f"countdown with {self.min_numbers} to {self.max_numbers} numbers up to {self.largest}"

    @property
    def tier_ranges(self) -> dict[str, tuple[int, int]]:
        return TIERS

    @property
    def prompt_length(self) -> int:
        """Tokens of numbers, blanks, colon, target and equals sign."""
        return MOST + 3

    @property
    def answer_length(self) -> int:
        return _tokens(self.max_numbers)

    @property
    def held_out_answer_length(self) -> int:
        """See `ClosedTask`; evaluation goes up to `MOST` numbers regardless of training."""
        return _tokens(MOST)

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        yield from ordered("min_numbers", self.min_numbers, "max_numbers", self.max_numbers)
        yield from super().contradictions(train)

    def difficulty(self, prompt: str) -> int:
        """See `RandomTask`; the numbers given."""
        return sum(word != BLANK for word in prompt.partition(COLON)[0].split())

    def draw(self, rng: random.Random) -> Problem:
        """See `RandomTask`; the number of numbers is uniform."""
        return self._make(rng, rng.randint(self.min_numbers, self.max_numbers))[0]

    def draw_demonstration(self, rng: random.Random) -> Problem:
        """See `RandomTask`; the expression from which the problem was made."""
        problem, expression = self._make(rng, rng.randint(self.min_numbers, self.max_numbers))
        return Problem(problem.text, expression)

    def draw_of_tier(self, rng: random.Random, tier: str) -> Problem:
        return self._make(rng, rng.randint(*TIERS[tier]))[0]

    def solution(self, problem: Problem) -> str:
        """See `Task`; the first expression that a search finds."""
        numbers, _, target = problem.gold.partition(COLON)
        return next(text for value, text in _reachable([(int(n), n) for n in numbers.split()]) if value == int(target))

    def _make(self, rng: random.Random, count: int) -> tuple[Problem, str]:
        """A problem with `count` numbers, and an expression of two or more of them that solves it."""
        while True:
            numbers = sorted(rng.randint(1, self.largest) for _ in range(count))
            target, expression = _combined(rng, rng.sample(numbers, rng.randint(2, count)))
            if target <= LARGEST and target not in numbers:
                break
        terms = " ".join(map(str, numbers))
        blanks = [BLANK] * (MOST - count)
        return Problem(" ".join([terms, *blanks, COLON, str(target), EQUALS]), f"{terms} {COLON} {target}"), expression


def _tokens(count: int) -> int:
    """Numbers, operators between them, parentheses around all but the outermost operation, and the end token."""
    return 2 * count - 1 + 2 * (count - 2) + 1


def _combined(rng: random.Random, numbers: list[int]) -> tuple[int, str]:
    """Value and text of a random expression of all `numbers`, with positive integers all the way."""
    parts = [(value, str(value)) for value in numbers]
    while len(parts) > 1:
        rng.shuffle(parts)
        (right, right_text), (left, left_text) = parts.pop(), parts.pop()
        value, symbol = rng.choice(_results(left, right))
        parts.append((value, f"{_operand(left_text)} {symbol} {_operand(right_text)}"))
    return parts[0]


def _reachable(parts: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Values and texts of all expressions of some of `parts`, with positive integers all the way."""
    yield from parts
    for i, j in itertools.permutations(range(len(parts)), 2):
        (left, left_text), (right, right_text) = parts[i], parts[j]
        others = [part for index, part in enumerate(parts) if index not in (i, j)]
        for value, symbol in _results(left, right):
            yield from _reachable([(value, f"{_operand(left_text)} {symbol} {_operand(right_text)}"), *others])


def _results(left: int, right: int) -> list[tuple[int, str]]:
    """Every positive integer that an operation makes of two, with its symbol."""
    results = [(left + right, "+"), (left * right, "*")]
    if left > right:
        results.append((left - right, "-"))
    if left % right == 0:
        results.append((left // right, "/"))
    return results


def _operand(text: str) -> str:
    return f"( {text} )" if " " in text else text


LONGEST = 9
"""Most letters of a problem."""
EQUALS = "="
PALINDROME_TIERS = {"n4-5": (4, 5), "n6-7": (6, 7), "n8-9": (8, 9)}
"""Minimum and maximum letters of each held-out tier."""


@dataclass(frozen=True)
class Palindrome(RandomTask):
    """Put given letters into an order that reads the same in both directions.

    The prompt is `a a b c c _ _ _ _ =`, letters in alphabetical order, so that a problem has one prompt; `a c b c a`
    and `c a b a c` are correct. All correct answers have one length. The rules follow `palindrome_generation` of
    reasoning-gym (https://github.com/open-thought/reasoning-gym), with one token per letter.
    """

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
        return f"palindromes of {self.min_letters} to {self.max_letters} letters"

    @property
    def tier_ranges(self) -> dict[str, tuple[int, int]]:
        return PALINDROME_TIERS

    @property
    def prompt_length(self) -> int:
        """Tokens of letters, blanks and the equals sign."""
        return LONGEST + 1

    @property
    def answer_length(self) -> int:
        return self.max_letters + 1

    @property
    def held_out_answer_length(self) -> int:
        """See `ClosedTask`; evaluation goes up to `LONGEST` letters regardless of training."""
        return LONGEST + 1

    def expected_tokens(self, max_response: int) -> tuple[float, float]:
        """See `Task`; the number of letters is uniform."""
        return self.prompt_length, (self.min_letters + self.max_letters) / 2 + 1

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
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
        palindrome = _palindrome(rng, rng.randint(*PALINDROME_TIERS[tier]))
        return _problem(palindrome, " ".join(sorted(palindrome)))

    def solution(self, problem: Problem) -> str:
        """See `Task`; half of each letter's copies on either side of the unpaired letter."""
        count = Counter(problem.gold.split())
        half = [letter for letter in count for _ in range(count[letter] // 2)]
        return " ".join([*half, *(letter for letter in count if count[letter] % 2), *reversed(half)])


def _palindrome(rng: random.Random, length: int) -> list[str]:
    half = rng.choices(string.ascii_lowercase, k=(length + 1) // 2)
    return half + half[: length // 2][::-1]


def _problem(palindrome: list[str], gold: str) -> Problem:
    blanks = [BLANK] * (LONGEST - len(palindrome))
    return Problem(" ".join([*sorted(palindrome), *blanks, EQUALS]), gold)
