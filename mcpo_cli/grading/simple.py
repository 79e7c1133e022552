"""Graders that need no library and always terminate, so that they may judge inside a training process.

All of them ignore white space between words. `exact`, `trace` and `final` compare texts; `integer` and `answer_is`
compare integers; for `countdown` and `palindrome` the gold is the condition that a correct response satisfies;
`math_dapo` repeats the verdicts of verl's string matcher.
"""

import operator
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from mcpo_cli.grading.base import NO_ANSWER, Grade, different, hedged
from mcpo_cli.grading.extract import given

MARKER = "####"
"""Begins the final answer of `final`, as in GSM8K (arXiv 2110.14168)."""
ANSWER_IS = ("answer is", MARKER)
"""Either begins the number of `answer_is`."""
_LONGEST = 40
"""Characters after the marker of `answer_is`; more cannot be one number."""
_INTEGER = re.compile(r"(-?(?:0|[1-9][0-9]{0,17}))\.?")
_NUMBER = re.compile(r":?\s*\$?(-?(?:[0-9]{1,3}(?:,[0-9]{3}){1,5}|[0-9]{1,18}))\.?")

_TOKEN = re.compile(r"\s*(?:(\d+)|([-+*/()]))")
_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2}
_APPLY: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}

_TAIL = 300
_ANSWER = re.compile(r"(?i)answer\s*:\s*([^\n]+)")
_REPLACED = {
    "an ": "",
    "a ": "",
    ".$": "$",
    r"\$": "",
    r"\ ": "",
    " ": "",
    "mbox": "text",
    r",\text{and}": ",",
    r"\text{and}": ",",
    r"\text{m}": r"\text{}",
}
"""Applied in this order: a replacement can enable the next one."""
_UNITS = (
    "square ways integers dollars mph inches hours km units \\ldots sue points feet minutes digits cents degrees cm gm "
    "pounds meters meals edges students childrentickets multiples"
)
_DROPPED = (
    *_UNITS.split(),
    r"\text{s}",
    r"\text{.}",
    "\\text{\ns}",
    r"\text{}^2",
    r"\text{}^3",
    "\\text{\n}",
    r"\text{}",
    r"\mathrm{th}",
    r"^\circ",
    r"^{\circ}",
    r"\;",
    r",\!",
    "{,}",
    '"',
    r"\dots",
)
_UNWRAPPED = (r"\\text\{(.*?)\}", r"\\textbf\{(.*?)\}", r"\\overline\{(.*?)\}", r"\\boxed\{(.*)\}")


@dataclass(frozen=True)
class Simple:
    """A grader (see `base.Grader`) that is a function."""

    name: str
    function: Callable[[str, str, bool], Grade]
    """Takes gold, response, and whether the response is already the bare answer."""
    rules: str = "1"
    """Version of its rules."""

    def version(self) -> str:
        """Its name and the version of its rules; it uses no library."""
        return f"{self.name} {self.rules}"

    def grade(self, gold: str, response: str, extracted: bool) -> Grade:
        """The verdict; extracted: whether `response` is already the bare answer."""
        return self.function(gold, response, extracted)


def _graded(is_correct: bool, answer: str | None, detail: str = "") -> Grade:
    return Grade("correct" if is_correct else "wrong", answer, detail)


def _exact(gold: str, response: str, extracted: bool) -> Grade:
    """Equality of the answer, or of the whole response if it marks no answer; never unparsable."""
    answers = given(response, extracted)
    if len({tuple(answer.split()) for answer in answers}) > 1:
        return hedged(answers[-1], different(answers))
    return _graded(answers[-1].split() == gold.split(), answers[-1])


def _trace(gold: str, response: str, extracted: bool) -> Grade:
    """Equality of the whole response; its last word is the answer. Never unparsable."""
    words = response.split()
    return _graded(words == gold.split(), words[-1] if words else None)


def _final(gold: str, response: str, extracted: bool) -> Grade:
    """Equality of the text after the last `####`; unparsable without it. Reasoning before it is not judged."""
    _, marker, answer = response.rpartition(MARKER)
    if not (marker or extracted):
        return NO_ANSWER
    words = answer.split()
    return _graded(words == gold.split(), " ".join(words))


def _integer(gold: str, response: str, extracted: bool) -> Grade:
    """Equality of an integer, which is the whole response or follows its last `=`: `7` and `3 + 4 = 7`.

    An integer is an optional minus sign and at most 18 ASCII digits without leading zeros; one final full stop (`7.`)
    is ignored, because sentences end with one. Anything else is unparsable: `+7`, `7.0`, `$7$`, `7 apples`, `07`,
    digits of other scripts. Expressions are not evaluated: `3 + 4` does not answer itself.
    """
    match = _INTEGER.fullmatch(response.rpartition("=")[2].strip())
    if match is None:
        return Grade("unparsable", detail="no integer is the whole response or follows its last =")
    return _graded(int(match[1]) == int(gold), match[1])


def _answer_is(gold: str, response: str, extracted: bool) -> Grade:
    """Equality of the number after the last `answer is` or `####`: `... The answer is 12.`

    The number ends the response, except for a full stop. It has at most 18 ASCII digits, with or without commas between
    groups of three, an optional minus sign before them, and an optional dollar sign before that; a colon may come first
    (`The answer is: $1,200.`). Anything else after the marker is unparsable, as in `12 apples`, `12 or 13` and `6 + 6`;
    so is a response without a marker. Upper and lower case are equal. Reasoning before the marker is not judged.
    """
    text = response.lower()
    ends = [at + len(marker) for marker in ANSWER_IS if (at := text.rfind(marker)) >= 0]
    if not (ends or extracted):
        return NO_ANSWER
    answer = text[max(ends, default=0) :].strip()
    match = _NUMBER.fullmatch(answer) if len(answer) <= _LONGEST else None
    if match is None:
        return Grade("unparsable", answer[:_LONGEST], "more or less than one number follows the marker")
    number = match[1].replace(",", "")
    return _graded(int(number) == int(gold), number)


def _palindrome(gold: str, response: str, extracted: bool) -> Grade:
    """Correct if the response is a palindrome of all the gold's letters; any such palindrome counts.

    The rule of `palindrome_generation` in reasoning-gym (https://github.com/open-thought/reasoning-gym).
    """
    letters = "".join(response.split())
    return _graded(letters == letters[::-1] and sorted(letters) == sorted("".join(gold.split())), letters)


class _NoExpressionError(ValueError):
    """The text is not an expression of the numbers given."""


def _countdown(gold: str, response: str, extracted: bool) -> Grade:
    """Correct if an expression reaches a target from given numbers, each used at most once; the arithmetic is exact.

    The gold `3 5 8 : 24` means "24 from 3, 5 and 8". A response is an infix expression of numbers, `+ - * /` and
    parentheses; intermediate fractions are allowed. `= 24` may follow it. Unparsable if it is not an expression.

    Raises:
        ValueError: the gold has no numbers or no target.
    """
    numbers, _, target = gold.partition(":")
    goal = Fraction(target)
    expression, equals, result = response.strip().partition("=")
    answer = " ".join(expression.split())
    if equals and result.strip() != target.strip():
        return _graded(False, answer, "the stated result is not the target")
    try:
        words = _tokens(expression)
        if Counter(filter(str.isdigit, words)) - Counter(numbers.split()):
            return _graded(False, answer, "a number is not given, or is used too often")
        reached = _reached(words)
    except _NoExpressionError as error:
        return Grade("unparsable", answer, str(error))
    except ZeroDivisionError:
        return _graded(False, answer, "division by zero")
    return _graded(reached == goal, answer)


def _tokens(text: str) -> list[str]:
    words, at = [], 0
    while at < len(text.rstrip()):
        word = _TOKEN.match(text, at)
        if word is None:
            raise _NoExpressionError(f"unknown symbol {text[at:].lstrip()[:10]!r}")
        words.append(word[1] or word[2])
        at = word.end()
    return words


def _reached(words: list[str]) -> Fraction:
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


def normal(answer: str) -> str:
    """The normal form in which `math_dapo` compares answers."""
    answer = answer.rpartition("=")[2]
    for old, new in _REPLACED.items():
        answer = answer.replace(old, new)
    for dropped in _DROPPED:
        answer = answer.replace(dropped, "")
    answer = re.sub(r".*?\$(.*?)\$.*", r"$\1$", answer)
    for wrapper in _UNWRAPPED:
        answer = re.sub(wrapper, r"\1", answer)
    answer = re.sub(r"frac([^{])(.)", r"frac{\1}{\2}", answer)
    answer = re.sub(r"sqrt([^{])", r"sqrt{\1}", answer)
    answer = answer.replace("$", "")
    digits = answer.replace(",", "")
    return (digits if digits.isdigit() else answer).strip()


def _math_dapo(gold: str, response: str, extracted: bool) -> Grade:
    r"""The verdicts of verl's string matcher for DAPO (`verl/utils/reward_score/math_dapo.py`), for comparison.

    Reimplemented from its behaviour (https://github.com/volcengine/verl, Apache-2.0), with its quirks: only the last
    300 characters of a response count, the last `Answer:` in them marks the answer (a `\boxed{}` does not), both sides
    are normalised as for Minerva (arXiv 2206.14858, appendix D.1), and the strings are compared: `\frac{1}{2}` is not
    `0.5`. Without an `Answer:`, unparsable (verl says wrong).
    """
    answers = [response] if extracted else _ANSWER.findall(response[-_TAIL:])
    if not answers:
        return NO_ANSWER
    return _graded(normal(answers[-1]) == normal(gold), answers[-1].strip())


EXACT = Simple("exact", _exact)
TRACE = Simple("trace", _trace)
FINAL = Simple("final", _final)
INTEGER = Simple("integer", _integer)
ANSWER = Simple("answer_is", _answer_is)
PALINDROME = Simple("palindrome", _palindrome)
COUNTDOWN = Simple("countdown", _countdown)
MATH_DAPO = Simple("math_dapo", _math_dapo, "verl b178a3cd rules 1")
