"""Whether an expression reaches a target from given numbers, each used at most once; the arithmetic is exact.

The gold is not an answer but what a right one must satisfy: `3 5 8 : 24` means "24 from 3, 5 and 8". A response is an
infix expression of numbers, `+ - * /` and parentheses; a fraction on the way is allowed. `= 24` may follow it.
"""

import operator
import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

from mcpo_cli.grading.base import Verdict

INTEGERS = False
_WORD = re.compile(r"\s*(?:(\d+)|([-+*/()]))")
_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2}
_APPLY: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


class _NoExpressionError(ValueError):
    """The text is not an expression of the numbers given."""


def version() -> str:
    """The version of its rules; it uses no library."""
    return "countdown 1"


def grade(gold: str, response: str, extracted: bool) -> Verdict:
    """Correct if the expression has the target's value; unparsable if it is no expression; else wrong.

    Raises:
        ValueError: the gold does not say numbers and a target.
    """
    numbers, _, target = gold.partition(":")
    wanted = Fraction(target)
    expression, equals, result = response.strip().partition("=")
    answer = " ".join(expression.split())
    if equals and result.strip() != target.strip():
        return Verdict("wrong", answer, "the stated result is not the target")
    try:
        words = _words(expression)
        if Counter(filter(str.isdigit, words)) - Counter(numbers.split()):
            return Verdict("wrong", answer, "a number is not given, or is used too often")
        reached = _value(words)
    except _NoExpressionError as error:
        return Verdict("unparsable", answer, str(error))
    except ZeroDivisionError:
        return Verdict("wrong", answer, "division by zero")
    return Verdict("correct" if reached == wanted else "wrong", answer)


def _words(text: str) -> list[str]:
    words, at = [], 0
    while at < len(text.rstrip()):
        word = _WORD.match(text, at)
        if word is None:
            raise _NoExpressionError(f"unknown symbol {text[at:].lstrip()[:10]!r}")
        words.append(word[1] or word[2])
        at = word.end()
    return words


def _value(words: list[str]) -> Fraction:
    """The value of an infix expression, by Dijkstra's shunting-yard algorithm: no recursion, however deep it nests."""
    values: list[Fraction] = []
    pending: list[str] = []

    def apply_down_to(binding: int) -> None:
        while pending and _BINDING.get(pending[-1], 0) >= binding:
            right, left = values.pop(), values.pop()
            values.append(_APPLY[pending.pop()](left, right))

    wants_operand = True
    for word in words:
        if wants_operand != (word.isdigit() or word == "("):
            raise _NoExpressionError(f"misplaced {word}")
        if word.isdigit():
            values.append(Fraction(word))
            wants_operand = False
        elif word == "(":
            pending.append(word)
        elif word == ")":
            apply_down_to(1)
            if not pending:
                raise _NoExpressionError("unbalanced )")
            pending.pop()
        else:
            apply_down_to(_BINDING[word])
            pending.append(word)
            wants_operand = True
    if wants_operand:
        raise _NoExpressionError("the expression is not complete")
    apply_down_to(1)
    if pending:
        raise _NoExpressionError("unbalanced (")
    return values[0]
