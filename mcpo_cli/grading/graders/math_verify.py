r"""Equality of mathematical values by math-verify (https://github.com/huggingface/Math-Verify), gold first.

math-verify alone searches a text for something to compare and takes the last it finds, so guesses can hide in one
answer. Here an answer is read as a whole, and one that holds several guesses is wrong, with the detail `hedged`:

- several boxes or labelled lines whose values differ (`\frac12` and `0.5` do not). Where the gold has several values
  the last boxes that stand side by side are one answer, and the other boxes may repeat its values;
- for a gold with one value: an answer with several (a list, a set, an interval, `\pm`), with a word that offers a
  choice or takes something back (`or`, `between`, `not`; see extract.CHOICE), with numbers side by side or around words
  in a `\text{}`, or with digits in one, which math-verify drops at the end of an answer;
- a chain of equations whose constant sides differ: `x = 41 = 42`.

Options: where the gold is one letter (A to J, perhaps in parentheses), the letter with which the answer begins
counts, if a bracket, point, colon or the end follows it: `(B)`, `\text{B}`, `B. 12`, `\textbf{(B)}\ 12`, in
either case.

What is left is math-verify's, with every text read as one expression: percent signs and units may be left out, `27.0`
is 27, `073` is 73, `10{,}000` and `10 000` are 10000, floats are rounded to six decimals, `x = 42` is 42, `a \approx b`
is a, expressions are evaluated (`\frac{84}{2}` is 42). A prediction (`extracted`) that is no expression is searched for
one as math-verify does, so a whole sentence can be one.
"""

import re
from functools import lru_cache
from importlib.metadata import version as version_of
from itertools import pairwise
from typing import Any

from latex2sympy2_extended.logic import And
from latex2sympy2_extended.math_normalization import NormalizationConfig
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from sympy import EmptySet, Eq, Set, Tuple
from sympy import FiniteSet as SympyFiniteSet
from sympy.core.relational import Relational

from mcpo_cli.grading.base import NO_ANSWER, Status, Verdict, hedged
from mcpo_cli.grading.extract import CHOICE, Marked, bare, marked
from mcpo_cli.grading.integers import different

INTEGERS = True
RULES = 1
"""Counts the changes of this module's and extract's rules: verdicts of different rules are different gradings."""

LONGEST_ANSWER = 100
"""A prediction of several words that is longer is a text to be searched: a word such as `or` means little in it."""

Value = list[Any]
"""What math-verify's parse returns: [expression, its text], [a text that is no expression], or nothing."""

_EVERYTHING = (LatexExtractionConfig(), ExprExtractionConfig())
_LATEX = (LatexExtractionConfig(),)
_UNITLESS = (
    LatexExtractionConfig(
        normalization_config=NormalizationConfig(malformed_operators=True, nits=True, boxed="all", units=False)
    ),
)
_PERCENT = re.compile(r"\s*(?:\\?%|(?i:per\s?cent(?:age)?|pct)\b)\s*$")
_THOUSANDS = re.compile(r"(?<![\d.,])(\d{1,3})((?:(?:[ ~]|\\[,;:! ]|\\thinspace )\d{3})+)(?!\d)")
_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_NUMBERS = re.compile(r"\d(?:[\s~]|\\[,;: ]|\\q?quad(?![A-Za-z]))++\d++(?!/)")
_EXPONENT = re.compile(r"\^\{?\d+\}?")
_DIGIT = re.compile(r"\d")
_LOOSE_DIGIT = re.compile(r"(?<![a-z])\d|\d\d")  # but not that of m2
_UNIT = re.compile(
    r"(?<=[\d}])\s+(?!(?:sin|cos|tan|cot|sec|csc|log|exp|sqrt|max|min|gcd|lcm|mod)\b)[A-Za-z]{3,}(?:\s[A-Za-z]{2,})*$"
)
_WORDS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}[\s,.:;]+[A-Za-z]{2,}|(?i:\banswer\b)")
_UPRIGHT = re.compile(r"\\(?:mathrm|rm)\s*\{\s*(e|i|\\pi)\s*\}")
_EQUALS = re.compile(r"(?<![\\<>!:])=|[{}]")
_VARIABLE = re.compile(r"\d[A-Za-z]$")
_OPTION_GOLD = re.compile(r"\W*([A-J])\W*")
_OPTION = re.compile(r"(?:^|\()\s*([A-Ja-j])(?:\s*[).:]|$)")


def version() -> str:
    """math-verify's version, and that of the rules around it."""
    return f"math_verify {version_of('math-verify')} rules {RULES}"


def search(text: str, targets: tuple[Any, ...] = _EVERYTHING) -> Value:
    """What math-verify finds in `text` by itself."""
    found: Value = parse(text, targets, parsing_timeout=None)
    return found


def equal(gold: Value, answer: Value, **options: Any) -> bool:
    """Whether two values are the same to math-verify; not symmetric."""
    return bool(verify(gold, answer, timeout_seconds=None, **options))


@lru_cache(maxsize=512)  # the samples of a problem share the gold, and many an answer
def read(text: str, units: bool = True) -> tuple[Any, ...]:
    """The value of `text`, all of it read as one LaTeX expression; units: a unit at its end does not count."""
    text = _THOUSANDS.sub(lambda number: re.sub(r"\D", "", number[0]), _UPRIGHT.sub(r" \1", bare(text)))
    if text.count("{") != text.count("}"):
        return ()
    if (words := _TEXT.fullmatch(text)) and any(map(str.isdigit, words[1])):
        text = words[1]
    text = _UNIT.sub("", text)
    if percent := _PERCENT.search(text):
        return tuple(search(f"${text[: percent.start()]}$ %", _LATEX))
    return tuple(search(rf"\boxed{{{text}}}", _LATEX if units else _UNITLESS))


def is_expression(value: tuple[Any, ...]) -> bool:
    """Whether something was read that is more than its text."""
    return bool(value) and not isinstance(value[0], str)


def several(value: tuple[Any, ...]) -> bool:
    """Whether it has more than one value: a set, a tuple, an interval, an inequality."""
    first = value[0] if value else None
    if isinstance(first, Eq):
        first = first.rhs
    if isinstance(first, SympyFiniteSet | Tuple):
        return len(first) > 1
    if isinstance(first, And):
        return not all(isinstance(relation, Eq) for relation in first.args)
    return isinstance(first, Relational) or (isinstance(first, Set) and first is not EmptySet)


def plain(text: str) -> str:
    r"""`text` without the commands that set words upright, such as \text{}."""
    return _TEXT.sub(r"\1", text).strip()


def guesses(answer: str) -> bool:
    """Whether `answer`, held against a gold with one value, offers more than one."""
    return bool(
        CHOICE.search(plain(answer))
        or _NUMBERS.search(_THOUSANDS.sub("0", answer))
        or any(_splits(answer, words) for words in _TEXT.finditer(answer))
        or several(read(answer))
    )


def _splits(answer: str, words: re.Match[str]) -> bool:
    r"""Whether a number is beside the words of a \text{}, and another one in them or on their other side."""
    before = _DIGIT.search(answer[: words.start()])
    after = _DIGIT.search(_EXPONENT.sub("", answer[words.end() :]))
    inside = _LOOSE_DIGIT.search(words[1])
    return bool((before and after and len(words[1].strip()) > 1) or (inside and (before or after)))


def sides_of(answer: str) -> list[str]:
    """What stands between the equals signs outside of braces."""
    depth, ends = 0, [-1]
    for sign in _EQUALS.finditer(answer):
        depth += {"{": 1, "}": -1, "=": 0}[sign[0]]
        if sign[0] == "=" and depth == 0:
            ends.append(sign.start())
    return [answer[start + 1 : end] for start, end in pairwise([*ends, len(answer)])]


def inconsistent(answer: str) -> bool:
    """Whether `answer` is a chain of equations whose constant sides differ."""
    sides = sides_of(answer)
    if len(sides) == 1 or re.search("[,;]", answer):
        return False
    values = [read(side) for side in sides]
    if len(sides) > 2 and any(
        not is_expression(value) and any(map(str.isdigit, side)) for side, value in zip(sides, values, strict=True)
    ):
        return True  # math-verify would take the last side for the answer
    constants = [value for value in values if is_expression(value) and getattr(value[0], "is_number", False)]
    return any(not equal(list(constants[-1]), list(value)) for value in constants[:-1])


@lru_cache(maxsize=512)
def same(gold: str, answer: str) -> bool:
    """Whether two texts have the same value; `answer` may have a unit."""
    if plain(gold).casefold() == plain(answer).casefold():
        return True
    if _VARIABLE.search(gold):  # "4t" is a product
        return equal(list(read(gold, units=False)), list(read(answer, units=False)))
    return equal(list(read(gold)), list(read(answer)))


@lru_cache(maxsize=512)
def gold_of(gold: str) -> str | None:
    """The answer in the text of a gold; None where it is meant as mathematics but nothing can read it."""
    found = marked(gold)
    text = ", ".join(found.beside) if found else bare(gold)
    readable = is_expression(read(text)) or (read(text) and not re.search(r"[\\{}^_]", plain(text)))
    return text if readable else None


def option(text: str) -> set[str]:
    """The options that `text` names: one in the first place, or any in parentheses."""
    return {letter.upper() for letter in _OPTION.findall(plain(text))}


def one_answer(gold: str, found: Marked) -> tuple[str, bool]:
    """The text to be held against the gold, and whether it is one answer and not several guesses."""
    if several(read(gold)):
        answer = ", ".join(found.beside)
        first = read(answer)[:1]
        values = [[value] for value in getattr(first[0], "args", ())] if is_expression(first) else []
        others = [other for other in found.answers if other not in found.beside]
        return answer, all(same(answer, other) or any(equal(v, list(read(other))) for v in values) for other in others)
    agree = all(same(found.last, other) or option(gold) & option(other) for other in found.answers[:-1])
    return found.last, agree


def hedge(gold: str, answer: str) -> bool:
    """Whether `answer` is more than one guess at `gold`."""
    one = not several(read(gold)) and not CHOICE.search(plain(gold))
    return (one and guesses(answer)) or inconsistent(answer) or len(option(answer)) > len(option(gold)) > 0


def compared(gold: str, answer: str) -> Status:
    """The status of an answer that is one guess."""
    if _OPTION_GOLD.fullmatch(plain(gold)) and (named := option(answer)):
        return "correct" if named == option(gold) else "wrong"
    if same(gold, answer):
        return "correct"
    return "wrong" if is_expression(read(answer)) or not is_expression(read(gold)) else "unparsable"


def grade(gold: str, response: str, extracted: bool) -> Verdict:
    """Whether the answer of `response` has the value of `gold`; the module says by which rules."""
    if (wanted := gold_of(gold)) is None:
        return Verdict("infra_error", detail="the gold answer cannot be parsed")
    found = marked(response)
    if found is None and extracted and response.strip():
        return prediction(wanted, response)
    if found is None:
        return NO_ANSWER
    answer, agree = one_answer(wanted, found)
    if not agree:
        return hedged(answer, different(found.answers))
    if plain(wanted).casefold() != plain(answer).casefold() and hedge(wanted, answer):
        return hedged(answer, answer)
    return Verdict(compared(wanted, answer), answer)


def prediction(gold: str, text: str) -> Verdict:
    """The verdict on a text that is an answer by itself."""
    answer = bare(text)
    sentence = bool(_WORDS.search(_TEXT.sub("", answer)))
    if not (sentence and len(answer) > LONGEST_ANSWER) and hedge(gold, answer):
        return hedged(answer, answer)
    status = compared(gold, answer)
    if status != "correct" and (sentence or status == "unparsable"):
        status = "correct" if equal(list(read(gold)), search(text)) else status
    return Verdict(status, answer)
