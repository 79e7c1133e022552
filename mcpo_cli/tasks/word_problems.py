"""Word problems of one to three steps for existing models: shops, journeys, ages, sharing equally.

Every template states all numbers that it needs, and its numbers are drawn so that each intermediate result is a
positive integer. A held-out tier is a number of steps. The worked examples write one equation per step and end with
`The answer is N.`, which the grader reads; the first four are additions, which small models imitate best.

The default style is `plain`: `Question: ...` and `Calculation:` on a line each, an empty line between two problems. The
response is one line.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from mcpo_cli.data.base import Problem
from mcpo_cli.settings import identity
from mcpo_cli.tasks.text import QUESTION, DrawnTextTask, Example, Style

NAMES = (
    *("Anna", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Henry", "Iris", "Jack"),
    *("Lena", "Marco", "Nina", "Oscar", "Paula", "Rosa", "Sam", "Tara", "Victor", "Yusuf"),
)
ITEMS = (
    *("apples", "balls", "books", "cards", "cookies", "flowers", "marbles", "oranges"),
    *("pencils", "shells", "stamps", "stickers", "stones", "toys"),
)
Integer = Callable[[], int]
"""Draws a number."""
Numbers = tuple[dict[str, int], int]
"""The numbers of a template by field, and the gold."""


@dataclass(frozen=True)
class Template:
    """A kind of word problem."""

    steps: int
    text: str
    """With the fields `one` and `two` for names, `items`, and the fields of the numbers."""
    draw: Callable[[Integer, Integer], Numbers]
    """Draws numbers by a function for terms and a function for factors."""


def _sum(term: Integer, factor: Integer) -> Numbers:
    a, b = term(), term()
    return {"a": a, "b": b}, a + b


def _difference(term: Integer, factor: Integer) -> Numbers:
    b, left = term(), term()
    return {"a": b + left, "b": b}, left


def _product(term: Integer, factor: Integer) -> Numbers:
    a, b = factor(), factor()
    return {"a": a, "b": b}, a * b


def _quotient(term: Integer, factor: Integer) -> Numbers:
    a, each = factor(), factor()
    return {"a": a, "b": a * each}, each


def _sum_difference(term: Integer, factor: Integer) -> Numbers:
    a, b = term(), term()
    c = min(term(), a + b - 1)
    return {"a": a, "b": b, "c": c}, a + b - c


def _product_sum(term: Integer, factor: Integer) -> Numbers:
    a, b, c = factor(), factor(), term()
    return {"a": a, "b": b, "c": c}, a * b + c


def _product_difference(term: Integer, factor: Integer) -> Numbers:
    a, b = factor(), factor()
    c = min(term(), a * b - 1)
    return {"a": a, "b": b, "c": c}, a * b - c


def _sum_quotient(term: Integer, factor: Integer) -> Numbers:
    a, each, b = factor(), factor(), term()
    each = max(each, -(-(b + 2) // a))
    return {"a": a, "b": b, "c": a * each - b}, each


def _sum_difference_sum(term: Integer, factor: Integer) -> Numbers:
    numbers, between = _sum_difference(term, factor)
    d = term()
    return {**numbers, "d": d}, between + d


def _change(term: Integer, factor: Integer) -> Numbers:
    numbers, price = _product_sum(term, factor)
    left = term()
    return {**numbers, "d": price + left}, left


def _product_product_sum(term: Integer, factor: Integer) -> Numbers:
    a, b, c, d = factor(), factor(), factor(), factor()
    return {"a": a, "b": b, "c": c, "d": d}, a * b + c * d


def _product_sum_quotient(term: Integer, factor: Integer) -> Numbers:
    a, b, d = factor(), factor(), factor()
    each = -(-(a * b + 2) // d)
    return {"a": a, "b": b, "c": d * each - a * b, "d": d}, each


TEMPLATES = (
    Template(1, "{one} has {a} {items}. {one} buys {b} more {items}. How many {items} does {one} have now?", _sum),
    Template(1, "{one} finds {a} {items} and {two} finds {b} {items}. How many {items} do they find in total?", _sum),
    Template(
        1, "{one} has {a} {items}. Then {two} gives {b} {items} to {one}. How many {items} does {one} have?", _sum
    ),
    Template(1, "{one} is {a} years old. {two} is {b} years older than {one}. How old is {two}?", _sum),
    Template(
        1, "{one} has {a} {items} and gives {b} of them to {two}. How many {items} does {one} have left?", _difference
    ),
    Template(
        1, "{one} has to walk {a} km and has walked {b} km. How many km does {one} still have to walk?", _difference
    ),
    Template(1, "{one} has {a} bags with {b} {items} in each bag. How many {items} does {one} have?", _product),
    Template(
        1, "{one} shares {b} {items} equally among {a} friends. How many {items} does each friend get?", _quotient
    ),
    Template(
        2,
        "{one} has {a} {items}. {one} buys {b} more {items} and then gives {c} {items} to {two}. How many {items} does "
        "{one} have now?",
        _sum_difference,
    ),
    Template(
        2,
        "{one} buys {a} {items} for {b} dollars each and a bag for {c} dollars. How many dollars does {one} pay?",
        _product_sum,
    ),
    Template(
        2,
        "{one} has {a} boxes with {b} {items} in each box. {one} loses {c} {items}. How many {items} does {one} have "
        "left?",
        _product_difference,
    ),
    Template(
        2,
        "{one} finds {b} {items} and {two} finds {c} {items}. They put all {items} into {a} bags, with equally many in "
        "each bag. How many {items} are in one bag?",
        _sum_quotient,
    ),
    Template(
        3,
        "There are {a} passengers on the bus of {one}. At the first stop {b} passengers get on. At the second stop {c} "
        "passengers get off. At the third stop {d} passengers get on. How many passengers are on the bus now?",
        _sum_difference_sum,
    ),
    Template(
        3,
        "{one} buys {a} {items} for {b} dollars each and a bag for {c} dollars. {one} pays with {d} dollars. How many "
        "dollars does {one} get back?",
        _change,
    ),
    Template(
        3,
        "{one} walks {b} km on each of {a} days. {two} walks {d} km on each of {c} days. How many km do {one} and "
        "{two} walk in total?",
        _product_product_sum,
    ),
    Template(
        3,
        "{one} has {a} boxes with {b} {items} in each box and finds {c} more {items}. {one} shares all {items} equally "
        "among {d} friends. How many {items} does each friend get?",
        _product_sum_quotient,
    ),
)
WORKED: tuple[Example, ...] = (
    ("Olga has 4 pens. Olga buys 3 more pens. How many pens does Olga have now?", "4 + 3 = 7. The answer is 7."),
    ("Karl is 9 years old. Olga is 2 years older than Karl. How old is Olga?", "9 + 2 = 11. The answer is 11."),
    ("Olga has 6 cups. Olga buys 2 more cups. How many cups does Olga have now?", "6 + 2 = 8. The answer is 8."),
    ("Karl has 3 pens. Karl buys 5 more pens. How many pens does Karl have now?", "3 + 5 = 8. The answer is 8."),
    ("Karl has 9 cups and gives 2 of them to Olga. How many cups does Karl have left?", "9 - 2 = 7. The answer is 7."),
    (
        "Olga shares 12 pens equally among 3 friends. How many pens does each friend get?",
        "12 / 3 = 4. The answer is 4.",
    ),
    (
        "Karl buys 3 cups for 5 dollars each and a plate for 4 dollars. How many dollars does Karl pay?",
        "3 * 5 = 15. 15 + 4 = 19. The answer is 19.",
    ),
    (
        "Karl has 20 cups. Karl sells 2 cups on each of 4 days and breaks 5 cups. How many cups does Karl have left?",
        "2 * 4 = 8. 20 - 8 = 12. 12 - 5 = 7. The answer is 7.",
    ),
)
"""Names and items of worked examples do not occur in the task, so that it never asks them."""


@dataclass(frozen=True)
class WordProblems(DrawnTextTask):
    """Word problems of one to three steps for existing models."""

    name = "word_problems"
    grader = "answer_is"
    characters = 2.9
    response_characters = 1.8

    style: Style = identity("plain")
    """Form of a prompt: turns of a chat template (`chat`), text without one (`plain`), or turns of a chat template
    where the tokenizer has one (`auto`)."""
    examples: int = identity(4, ge=0)
    """Number of worked examples before the question."""
    shares: tuple[float, ...] = identity((8.0, 1.0, 1.0))
    """Relative frequency of problems of one, two and three steps in training; empty takes all equally often."""
    largest: int = identity(5, ge=4, le=10_000)
    """Largest number that is added or subtracted; the smallest is 2. Larger may be totals, and the second term of a sum
    that is divided."""
    largest_factor: int = identity(4, ge=4, le=100)
    """Largest factor or divisor; the smallest is 2. Quotients may be larger."""

    @property
    def title(self) -> str:
        return f"word problems of 1 to 3 steps, terms up to {self.largest}, factors up to {self.largest_factor}"

    @property
    def tier_names(self) -> tuple[str, ...]:
        """See `GeneratedTask`; one tier for each number of steps."""
        return tuple(dict.fromkeys(map(_tier, TEMPLATES)))

    @property
    def own_template(self) -> str:
        return f"Question: {QUESTION}\nCalculation:" if self.is_plain else QUESTION

    @property
    def own_stops(self) -> tuple[str, ...]:
        return ("\n",) if self.is_plain else ()

    @property
    def worked(self) -> Sequence[Example]:
        return [(question, f" {response}") for question, response in WORKED] if self.is_plain else WORKED

    def tier_of(self, prompt: str) -> str:
        return next((_tier(template) for template in TEMPLATES if _pattern(template.text).fullmatch(prompt)), "")

    def draw_of_tier(self, rng: random.Random, tier: str) -> Problem:
        """See `DrawnTask`; the tier's templates are equally likely."""
        template = rng.choice([template for template in TEMPLATES if _tier(template) == tier])
        numbers, gold = template.draw(lambda: rng.randint(2, self.largest), lambda: rng.randint(2, self.largest_factor))
        one, two = rng.sample(NAMES, 2)
        text = template.text.format(one=one, two=two, items=rng.choice(ITEMS), **numbers)
        return Problem(text, str(gold))


def _tier(template: Template) -> str:
    return f"steps-{template.steps}"


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Matches each problem of the template `text`."""
    return re.compile(re.sub(r"\\{\w+\\}", r"\\w+", re.escape(text)))
