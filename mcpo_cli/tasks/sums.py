"""Sums of small integers for existing models: `3 + 4`, `12 + 7`, `3 + 4 + 5`, `9 - 2`, `3 * 4`.

A sort names the digits of each operand and the operators: `2+1` is a number of two digits plus a number of one digit.
Numbers have no leading zero and are positive; results may be negative. Multiplication comes before addition and
subtraction.

The style `plain` is the default, and its prompt is `2 + 5 = 7`, `13 + 4 = 17` and `3 + 4 =`, a line each; the response
is ` 7` and ends at the line break. In the other styles the question is `What is 3 + 4?` and worked examples answer it
by `3 + 4 = 7`.

A held-out tier is a sort, with the operators as words (`2plus1`), because MLflow takes no `+` or `*` in a metric's
name. A tier of few different sums has all held-out sums.
"""

import itertools
import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mcpo_cli.data.base import Problem
from mcpo_cli.settings import identity
from mcpo_cli.tasks.base import Limits
from mcpo_cli.tasks.text import QUESTION, DrawnTextTask, Example, Style

WORDS = {"+": "plus", "-": "minus", "*": "times"}
SORT = re.compile(r"[1-6](?:[-+*][1-6]){1,4}")
WORKED = ("2 + 5", "13 + 4", "31 + 26", "4 + 1 + 3")
"""The questions of worked examples; the task never asks them."""


@dataclass(frozen=True)
class Sums(DrawnTextTask):
    """Sums of small integers for existing models."""

    name = "sums"
    grader = "integer"
    between = "\n"
    characters = 1.4
    response_characters = 1.0

    style: Style = identity("plain")
    """Form of a prompt: turns of a chat template (`chat`), text without one (`plain`), or turns of a chat template
    where the tokenizer has one (`auto`)."""
    examples: int = identity(2, ge=0)
    """Number of worked examples before the question."""
    sorts: tuple[str, ...] = identity(("1+1", "2+1", "2+2", "1+1+1"))
    """Sorts of sums: the digits (1 to 6) of each of 2 to 5 operands, with `+`, `-` or `*` between them."""

    @property
    def title(self) -> str:
        return f"sums of the sorts {', '.join(self.sorts)}"

    @property
    def tier_names(self) -> tuple[str, ...]:
        """See `GeneratedTask`; one tier for each sort."""
        return tuple(map(_tier, self.sorts))

    @property
    def own_template(self) -> str:
        return f"{QUESTION} =" if self.is_plain else f"What is {QUESTION}?"

    @property
    def worked(self) -> Sequence[Example]:
        return [(text, f" {_value(text)}" if self.is_plain else f"{text} = {_value(text)}") for text in WORKED]

    def tier_of(self, prompt: str) -> str:
        tier = _tier("".join(str(len(word)) if word.isdigit() else word for word in prompt.split()))
        return tier if tier in self.tier_names else ""

    def draw_of_tier(self, rng: random.Random, tier: str) -> Problem:
        """See `DrawnTask`; each number is uniform among the numbers with its digits."""
        sort = self.sorts[self.tier_names.index(tier)]
        while True:
            problem = _problem(sort, [rng.choice(numbers) for numbers in _operands(sort)])
            if problem.text not in WORKED:
                return problem

    def every(self, tier: str) -> Iterator[Problem]:
        sort = self.sorts[self.tier_names.index(tier)]
        problems = (_problem(sort, numbers) for numbers in itertools.product(*_operands(sort)))
        return (problem for problem in problems if problem.text not in WORKED)

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        fix = f"task.sorts=[{','.join(Sums.sorts)}]"
        for sort in self.sorts:
            if not SORT.fullmatch(sort):
                yield f"task.sorts: '{sort}' must give each operand's number of digits, from 1, as 2+1 for 47+5", fix
        if len(set(self.sorts)) < max(1, len(self.sorts)):
            yield f"task.sorts={list(self.sorts)} {'repeats a sort' if self.sorts else 'is empty'}", fix
        yield from super().contradictions(train)


def _tier(sort: str) -> str:
    return "".join(WORDS.get(sign, sign) for sign in sort)


def _operands(sort: str) -> list[range]:
    """The numbers that each operand of `sort` may be."""
    return [range(10 ** (digits - 1), 10**digits) for digits in map(int, re.split(r"[-+*]", sort))]


def _problem(sort: str, numbers: Sequence[int]) -> Problem:
    words = [str(numbers[0])]
    for operator, number in zip(re.findall(r"[-+*]", sort), numbers[1:], strict=True):
        words += [operator, str(number)]
    text = " ".join(words)
    return Problem(text, str(_value(text)))


def _value(text: str) -> int:
    """The value of a sum: its terms are products, each with the sign before it."""
    terms = re.split(r" (?=[-+] )", f"+ {text}")
    return sum((1 if term[0] == "+" else -1) * math.prod(map(int, term[2:].split(" * "))) for term in terms)
