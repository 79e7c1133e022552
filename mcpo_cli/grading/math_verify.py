r"""Equality of mathematical values by math-verify (https://github.com/huggingface/Math-Verify), gold first.

math-verify alone searches a text for expressions and takes the last, so an answer can hide several guesses. Here an
answer is read as a whole (`reading`), and an answer with several guesses is incorrect, with the detail `hedged`:

- several boxes or labelled lines with different values (`\frac12` and `0.5` are equal). If the gold has several values,
  the last boxes that are side by side are one answer, and the other boxes may repeat its values;
- the cases in `HEDGES`: for a gold with one value, an answer with several, or with words between numbers; for any gold,
  a chain of equations whose constant sides differ: `x = 41 = 42`.

An answer with the gold's value is `unevaluated` if it leaves the requested computation undone. Each side of an equation
is checked by itself (`\sum_{k=1}^{6} k^2 = 91` is evaluated). Unevaluated are:

- a sum, product, integral, limit, gcd, lcm, binomial, extremum, determinant, remainder or rounding (`OPERATION`) that
  the gold does not contain;
- if the gold is a written-out number (`reading.literal`), anything that is not: `17 \cdot 23`, `2^{10}`, `\sqrt{16}`,
  `7!`. A fraction of two integers is a number, in lowest terms or not: `\frac{84}{2}` is evaluated, as are `2\frac12`,
  `84/2`, `42\%` and `4.2 \times 10^1`.

The caller decides whether unevaluated answers count (`pool.Pool`): a training reward refuses them, an evaluation by
default accepts them, as published graders do.

Multiple choice, for a gold that is one letter, is in `options`.

Angles are equal in degrees and in radians: `30^\circ` is `\frac{\pi}{6}`. A list without names, `1, 2`, equals a list
in its order with names or units: `a = 1, b = 2`; for such a gold, values without names keep its order. Two lists have a
value equally often: `1, 1, 2` is not `1, 2`, but `\{1, 1, 2\}` is `\{1, 2\}`. A ratio keeps its order, and a time is no
ratio; `5:30 pm` is `17:30`. Units of one kind are converted: `0.5 m` is `50 cm`, `36 km/h` is `10 m/s`; a number
without a unit has the gold's. A decimal gold, `0.714`, equals an exact answer that rounds to it.

The rest follows math-verify: percent signs and units may be omitted, `27.0` is 27, `073` is 73, floats are compared at
six decimals or three significant digits, whichever is finer, `x = 42` is 42 (but `3x = 42` is not), `a \approx b` is a,
or b if a rounds to it. A number in a base must have the gold's digits and base; it may omit the base. A prediction
(`extracted`) that is a sentence is searched for an expression as math-verify does.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version as version_of
from itertools import pairwise
from typing import Any

from sympy import Expr, Rational

from mcpo_cli import thinking
from mcpo_cli.grading import options
from mcpo_cli.grading.base import NO_ANSWER, PREFERRED, Grade, Status, different, hedged
from mcpo_cli.grading.equality import equal, rounded, rounds_to
from mcpo_cli.grading.extract import CHOICE, Marked, bare, labelled, marked
from mcpo_cli.grading.reading import (
    CONDITION,
    OR,
    PERCENT,
    as_tuple,
    bases,
    condition,
    hours,
    is_expression,
    literal,
    multiplies,
    read,
    repeats,
    search,
    several,
)
from mcpo_cli.grading.spelling import (
    SPACE,
    TEXT,
    WORDS,
    items_of,
    named_values,
    plain,
    same_text,
    sides_of,
    spelled,
    unnamed,
)
from mcpo_cli.grading.units import ratio, unit_of

RULES = 12
"""Version of the rules here and in the modules of `grading` that are imported here; raise it with every change."""

LONGEST_ANSWER = 100
"""Sentences with more characters are not tested for hedging: a word such as `or` means little in them."""

OPERATION = re.compile(
    r"(?<![A-Za-z])(sum|prod|i{0,3}nt|oint|lim|gcd|lcm|binom|choose|max|min(?!\s*$)|sup|inf|det|[bp]?mod|lfloor|lceil)(?![A-Za-z])"
)
"""LaTeX commands of operations that an answer may leave unevaluated."""

_NUMBERS = re.compile(r"\d(?:[\s~]|\\[,;: ]|\\q?quad(?![A-Za-z]))++\d++(?!/)")
_EXPONENT = re.compile(r"\^\{?-?\d+\}?")
_DIGIT = re.compile(r"\d")
_LOOSE_DIGIT = re.compile(r"(?<![a-z^])(?<!\^-)\d|\d\d")  # but not the digit in m2
_WORDS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}[\s,.:;]+[A-Za-z]{2,}|(?i:\banswer\b)")
_DENIED = re.compile(r"(?i)\bnot\s+\$?-?\d[\d.,]*\$?")
_VARIABLE = re.compile(r"[\d}][A-Za-z]$")
_DOMAIN = re.compile(rf",?\s*{WORDS}\{{\s*for (?:all|any|every|each)\s*\}}\s*[A-Za-z]\s*\\in\b[^,;]*$")
"""The domain after a function: for all x in the rationals."""
_TIME = re.compile(r"\d{1,2}(?::[0-5]\d)+")
_APPROX = re.compile(r"\\(?:approx|simeq|doteq)(?![A-Za-z])")
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\s*\^\s*\{?\s*\\circ\s*\}?")
_BOUND = re.compile(
    r"(?i)\b(?:(?:fewer|less|more|greater|larger|smaller) than|at (?:least|most)|up to)\s+\$?-?\d[\d.,]*\$?\W*\Z"
    r"|\d\W+at (?:least|most)\W*\Z"
)
"""A bound at the end of a sentence, which is no answer."""
_CHANGES = re.compile(
    r"(?i)\b(?:below zero|too (?:large|small|big|high|low|many|few)|to the power|times (?:ten|a hundred)|repeating"
    r"|recurring|ppm|per ?mille|per thousand|basis points?|(?:percent|\\?%)\s*(?:less|more|fewer|off)|half of|twice"
    r"|\d+(?:st|nd|rd|th) (?:root|power)"
    r"|\d (?:plus|minus|divided by|multiplied by|added to|subtracted from|times some\w*))\b"
    r"|\d\s*(?:以[上下内]|未[満满]|分之|分の|[割成折百兆不])"
    r"|^\W*(?:an? |the )?(?:(?:square|cube) root|square|cube|reciprocal|logarithm|third|quarter) of \S*\d\S*$"
)
"""Words beside a number that make it another number."""


def version() -> str:
    """The versions of math-verify and of the rules here."""
    return f"math_verify {version_of('math-verify')} rules {RULES}"


def _splits(answer: str) -> bool:
    r"""True if words in a \text{} separate two numbers, or are next to one number and contain another."""
    for words in TEXT.finditer(answer):
        before = _DIGIT.search(answer[: words.start()])
        after = _DIGIT.search(_EXPONENT.sub("", answer[words.end() :]))
        inside = _LOOSE_DIGIT.search(words[1])
        if (before and after and len(words[1].strip()) > 1) or (inside and (before or after)):
            return True
    return False


def _inconsistent(answer: str) -> bool:
    sides = sides_of(answer)
    if len(sides) == 1 or re.search("[,;]", answer):
        return False
    values = [read(side) for side in sides]
    if len(sides) > 2 and any(
        not is_expression(value) and any(map(str.isdigit, side)) for side, value in zip(sides, values, strict=True)
    ):
        return True  # math-verify would take the last side as the answer
    constants = [pair for pair in zip(values, sides, strict=True) if is_expression(pair[0])]
    constants = [pair for pair in constants if getattr(pair[0][0], "is_number", False)]
    return any(not _equal_sides(*constants[-1], *pair) for pair in constants[:-1])


def _equal_sides(value: tuple[Any, ...], side: str, other_value: tuple[Any, ...], other_side: str) -> bool:
    """True if two sides of an equation are equal, also in other units: 50 cm = 0.5 m."""
    if ratio(side, other_side) not in (None, 1):
        return same(side, other_side)
    return equal(list(value), [other_value[0].doit(), *other_value[1:]])


TEXTUAL: dict[str, Callable[[str], bool]] = {
    "a word that denies an answer": options.denied,
    "a word that changes a number": lambda answer: bool(_CHANGES.search(plain(answer))),
}
"""Tests of words that take an answer back, for any gold, unless it has these words itself."""
HEDGES: dict[str, Callable[[str], bool]] = {
    "a word that offers or retracts an answer": lambda answer: bool(CHOICE.search(plain(answer))),
    "numbers side by side": lambda answer: bool(_NUMBERS.search(answer)),
    "numbers around words": _splits,
    "several values": lambda answer: several(read(answer)),
    "sides that differ": _inconsistent,
}
"""Tests for several guesses at a gold with one value; the last rule applies to every gold."""


def hedge(gold: str, answer: str) -> str:
    """The rule by which `answer` holds several guesses at `gold`; empty if none applies."""
    if not _DOMAIN.search(gold):
        answer = _DOMAIN.sub("", answer)
    is_single = not several(read(gold)) and not CHOICE.search(plain(gold))
    rules = {name: breaks for name, breaks in TEXTUAL.items() if not breaks(gold)}
    rules |= HEDGES if is_single else {"sides that differ": _inconsistent}
    if len(options.named(answer)) > len(options.named(gold)) > 0:
        return "several options"
    return next((name for name, breaks in rules.items() if breaks(answer)), "")


@lru_cache(maxsize=512)
def same(gold: str, answer: str) -> bool:
    """True if two texts have the same value; `answer` may end with a unit."""
    scale = ratio(gold, answer)
    contradict = _contradict(gold, answer, convertible=scale is not None)
    if contradict or same_text(gold, answer) or not same_counts(gold, answer):
        return same_text(gold, answer)
    if scale not in (None, 1):
        return _equal_amounts(gold, answer, Rational(scale))
    if ("matrix" in gold) != ("matrix" in answer):
        gold, answer = as_tuple(gold), as_tuple(answer)
    if any(_DEGREES.search(degrees) and r"\pi" in radians for degrees, radians in ((gold, answer), (answer, gold))):
        gold, answer = (_DEGREES.sub(r"\\frac{\1\\pi}{180}", text) for text in (gold, answer))
    if same_parts(gold, answer) or same_sides(gold, answer):
        return True
    if (decided := same_order(gold, answer)) is not None or (decided := same_ratio(gold, answer)) is not None:
        return decided
    if (share := share_of(answer)) and not share_of(gold):
        return equal(list(read(gold)), share)
    unitless = not _VARIABLE.search(gold)  # "4t" is a product
    values = list(read(gold, unitless)), list(read(answer, unitless))
    return equal(*values) or rounds_to(*values)


def _equal_amounts(gold: str, answer: str, scale: Expr) -> bool:
    """True if `answer` has the number of `gold`, an equation its right side, once it is multiplied by `scale`."""
    values = [read(text) for text in (gold, answer)]
    numbers = [getattr(value[0], "rhs", value[0]) for value in values if is_expression(value)]
    numbers = [number for number in numbers if isinstance(number, Expr)]
    return len(numbers) == len(values) and equal(numbers[:1], [numbers[1] * scale])


def _contradict(gold: str, answer: str, *, convertible: bool) -> bool:
    """True if two texts state other bases, conditions or units; a text may leave them out, only the answer a base."""
    stated = [(condition(text), () if convertible else unit_of(text)) for text in (gold, answer)]
    names = bases(answer)
    return (
        bool(names and names != bases(gold))
        or (multiplies(answer) and "=" not in gold)
        or any(len(set(filter(None, pair))) > 1 for pair in zip(*stated, strict=True))
    )


def share_of(text: str) -> list[Any]:
    r"""The value of a percentage below 1, such as `1/2\%`, as a share; empty for anything else.

    `28\%` may mean 28, if the question asks for percent. A number below 1 is more likely a probability.
    """
    percent = PERCENT.search(text)
    value = read(sides_of(text[: percent.start()])[-1]) if percent else ()
    if not is_expression(value) or not getattr(value[0], "is_number", False):
        return []
    return [value[0] / 100] if 0 < abs(value[0]) < 1 else []


def same_counts(gold: str, answer: str) -> bool:
    """True unless one of two lists has a value more often, as 1, 1, 2 and 1, 2 have; a gold in braces is a set."""
    if r"\{" in gold or not any(map(repeats, (gold, answer))):
        return True
    golds, values = items_of(gold), items_of(answer)
    return len(golds) == len(values) and all(
        sum(same(item, text) for text in golds) == sum(same(item, text) for text in values) for item in golds
    )


def same_parts(gold: str, answer: str) -> bool:
    """True if `answer` has the values of a list `gold` in its order, with names or units: a = 1, b = 2 for 1, 2."""
    content = gold[1:-1] if re.fullmatch(r"\([^()]*\)", gold) else gold
    golds, values = content.split(","), unnamed(answer)
    if len(golds) != len(values) or len(golds) < 2 or re.search("[=:<>]", gold) or ", ".join(values) == answer:
        return False
    return all(same(*pair) for pair in zip(golds, values, strict=True))


def same_order(gold: str, answer: str) -> bool | None:
    """True if `answer`, without names, has the values of x = 1, y = 2 in their order; None if it is another case."""
    golds = named_values(gold)
    if not golds or "=" in answer or r"\{" in answer:
        return None
    values = unnamed(re.sub(r"^\((.*)\)$", r"\1", plain(answer)))
    if len(values) != len(golds):
        return None
    return all(same(*pair) for pair in zip(golds.values(), values, strict=True))


def same_ratio(gold: str, answer: str) -> bool | None:
    """True if two times, or two ratios of three or more terms, are equal; None if it is another case."""
    if re.search(r"[,;|<>]|\\\{", gold + answer):
        return None
    sides = (sides_of(CONDITION.sub("", plain(text)))[-1] for text in (gold, answer))
    golds, values = (re.sub(rf"{SPACE}+", "", side).split(":") for side in sides)
    if _TIME.fullmatch(":".join(golds)) and _TIME.fullmatch(":".join(values)):
        halves = ("", ""), (condition(gold), condition(answer))
        return any(hours(golds, half) == hours(values, other) for half, other in halves)
    if max(len(golds), len(values)) < 3:
        return None
    pairs = zip(pairwise([*golds, golds[0]]), pairwise([*values, values[0]]), strict=False)
    return len(golds) == len(values) and all(same(":".join(gold_pair), ":".join(pair)) for gold_pair, pair in pairs)


def same_sides(gold: str, answer: str) -> bool:
    """True if two equations have the same sides in the same order, also where both are identities."""
    sides = sides_of(gold), sides_of(answer)
    return len(sides[0]) == len(sides[1]) > 1 and all(
        same_text(*pair) or (same(*pair) and not _VARIABLE.search(pair[1])) for pair in zip(*sides, strict=True)
    )


@lru_cache(maxsize=512)
def gold_of(gold: str) -> str | None:
    """The answer in a gold's text; None if it looks like mathematics but cannot be parsed."""
    answer = marked(gold)
    text = spelled(", ".join(answer.adjacent) if answer else gold)
    readable = is_expression(read(text)) or (read(text) and not re.search(r"[\\{}^_]", plain(text)))
    return text if readable else None


def options_of(response: str, marks: Marked) -> Marked:
    """The marks that name an option, where a response works out a value in a box and ends `Answer: D`."""
    lines = labelled(thinking.answer(response) or "", _tidied)
    if lines is None or not options.named(lines.last) or lines.last in marks.answers:
        return marks
    return Marked((*(answer for answer in marks.answers if options.named(answer)), lines.last), (lines.last,))


def _tidied(line: str) -> str:
    """`line` without decoration, but with its option, as in `(B) $12$`."""
    text = bare(line)
    return text if options.named(text) == options.named(line) else line.strip()


def one_answer(gold: str, marks: Marked) -> tuple[str, bool]:
    """The text to compare with the gold, and True if it is one answer rather than several guesses."""
    if several(read(gold)):
        answer = ", ".join(marks.adjacent)
        first = read(answer)[:1]
        values = [[value] for value in getattr(first[0], "args", ())] if is_expression(first) else []
        others = [text for text in marks.answers if text not in marks.adjacent]
        return answer, all(same(answer, text) or any(equal(v, list(read(text))) for v in values) for text in others)
    agree = all(same(marks.last, text) or options.named(gold) & options.named(text) for text in marks.answers[:-1])
    return marks.last, agree


def evaluated(gold: str, answer: str) -> bool:
    """True if `answer`, which has the value of `gold`, is evaluated."""
    operations, number = set(OPERATION.findall(gold)), literal(read(gold))
    if _DEGREES.search(gold) and r"\pi" in answer:
        number = False
    return any(
        (side == answer or same(gold, side))
        and not set(OPERATION.findall(side)) - operations
        and (literal(read(side)) or not number)
        for side in (answer, *sides_of(answer))
    )


def compared(gold: str, answer: str) -> Status:
    """The status of an answer with a single guess."""
    if options.GOLD.fullmatch(plain(gold)) and (choices := options.named(answer)):
        return "correct" if choices == options.named(gold) else "wrong"
    if same_text(gold, answer):
        return "correct"
    if same(gold, answer):
        return "correct" if evaluated(gold, answer) else "unevaluated"
    return "wrong" if is_expression(read(answer)) or not is_expression(read(gold)) else "unparsable"


def grade(gold: str, response: str, extracted: bool) -> Grade:
    """The verdict on the answer of `response` against `gold`, by the rules in the module docstring."""
    if (target := gold_of(gold)) is None:
        return Grade("infra_error", detail="the gold answer cannot be parsed")
    marks = marked(response)
    if marks and options.GOLD.fullmatch(plain(target)) and not extracted:
        marks = options_of(response, marks)
    if marks is None and extracted and response.strip():
        return prediction(target, response)
    if marks is None:
        return NO_ANSWER
    answer, agree = one_answer(target, marks)
    if not agree:
        return hedged(answer, different(marks.answers))
    return judged(target, answer)


def judged(gold: str, answer: str) -> Grade:
    """The verdict on one marked answer."""
    if verdict := options.verdict(gold, answer):
        return verdict
    text = spelled(answer)
    values = OR.split(text)
    if len(values) > 1 and {judged(gold, value).status for value in values} == {"correct"}:
        return Grade("correct", answer)
    values = _APPROX.split(text)
    if len(values) > 1 and all(rounded(sides_of(exact)[-1], shown) for exact, shown in pairwise(values)):
        grades = [judged(gold, value) for value in values]
        best = min(grades, key=lambda grade: (not grade.detail, PREFERRED.index(grade.status)))
        return Grade(best.status, answer, best.detail)
    if not same_text(gold, text) and (rule := hedge(gold, text)):
        return hedged(answer, f"{rule}: {answer}")
    return Grade(compared(gold, text), answer)


def prediction(gold: str, text: str) -> Grade:
    """The verdict on a text that as a whole is the answer."""
    if verdict := options.verdict(gold, text):
        return verdict
    answer = bare(text)
    sentence = bool(_WORDS.search(TEXT.sub("", spelled(answer))))
    if sentence:
        answer = _DENIED.sub("", answer)
    is_long = sentence and len(answer) > LONGEST_ANSWER
    grade = Grade(compared(gold, spelled(answer)), answer) if is_long else judged(gold, answer)
    has_more = grade.status == "unparsable" or (grade.status == "wrong" and not grade.detail)
    if sentence and has_more and not _BOUND.search(text):
        is_equal = equal(list(read(gold)), search(text))
        return Grade("correct", answer) if is_equal else grade
    return grade
