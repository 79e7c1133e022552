r"""Equality of mathematical values by math-verify (https://github.com/huggingface/Math-Verify), gold first.

math-verify alone searches a text for something to compare and takes the last it finds, so guesses can hide in one
answer. Here an answer is read as a whole (`reading`), and one that holds several guesses is wrong, with the detail
`hedged`:

- several boxes or labelled lines whose values differ (`\frac12` and `0.5` do not). Where the gold has several values
  the last boxes that stand side by side are one answer, and the other boxes may repeat its values;
- what `HEDGES` lists: for a gold with one value an answer with several, or with words between numbers; for any gold a
  chain of equations whose constant sides differ: `x = 41 = 42`.

An answer with the value of the gold is `unevaluated` where it leaves to the reader what the problem asks for. That is
decided so (each side of an equation by itself: `\sum_{k=1}^{6} k^2 = 91` is evaluated):

- a sum, product, integral, limit, gcd, lcm, binomial, extremum, determinant, remainder or rounding (`OPERATION`) that
  the gold does not have as well;
- where the gold is a number as it is written down (`reading.literal`), everything that is not one: `17 \cdot 23`,
  `2^{10}`, `\sqrt{16}`, `7!`. A fraction of two integers is a number, in lowest terms or not: `\frac{84}{2}` is
  evaluated, as are `2\frac12`, `84/2`, `42\%` and `4.2 \times 10^1`.

Whether that counts is the caller's to say (`pool.Pool`): a training reward refuses it, an evaluation takes it unless
told otherwise, as the published graders do.

Options: where the gold is one letter (A to J, perhaps in parentheses), the letter with which the answer begins
counts, if a bracket, point, colon or the end follows it: `(B)`, `\text{B}`, `B. 12`, `\textbf{(B)}\ 12`, `Option B`,
in either case.

What is left is math-verify's: percent signs and units may be left out, `27.0` is 27, `073` is 73, floats are rounded
to six decimals, and to three digits where that is more, `x = 42` is 42, `a \approx b` is a. A number in a base has the
digits of the gold and, if both name one, its base. A prediction (`extracted`) that is no expression is searched for one
as math-verify does, so a whole sentence can be one.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version as version_of

from mcpo_cli.grading.base import NO_ANSWER, Status, Verdict, hedged
from mcpo_cli.grading.extract import CHOICE, Marked, bare, marked
from mcpo_cli.grading.integers import different
from mcpo_cli.grading.reading import (
    TEXT,
    bases,
    equal,
    is_expression,
    literal,
    plain,
    read,
    search,
    several,
    sides_of,
    spelled,
)

INTEGERS = True
RULES = 2
"""Counts the changes of the rules here, in `reading` and in `extract`: other rules are another grading."""

LONGEST_ANSWER = 100
"""A prediction of several words that is longer is a text to be searched: a word such as `or` means little in it."""

OPERATION = re.compile(
    r"(?<![A-Za-z])(sum|prod|i{0,3}nt|oint|lim|gcd|lcm|binom|choose|max|min|sup|inf|det|[bp]?mod|lfloor|lceil)(?![A-Za-z])"
)
"""What an answer may leave undone, by the name of its command."""

_NUMBERS = re.compile(r"\d(?:[\s~]|\\[,;: ]|\\q?quad(?![A-Za-z]))++\d++(?!/)")
_EXPONENT = re.compile(r"\^\{?\d+\}?")
_DIGIT = re.compile(r"\d")
_LOOSE_DIGIT = re.compile(r"(?<![a-z])\d|\d\d")  # but not that of m2
_WORDS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}[\s,.:;]+[A-Za-z]{2,}|(?i:\banswer\b)")
_DENIED = re.compile(r"(?i)\bnot\s+\$?-?\d[\d.,]*\$?")
_VARIABLE = re.compile(r"\d[A-Za-z]$")
_DECIMAL_COMMA = re.compile(r"(-?\d+),(?!\d{3}$)(\d+)")
_OPTION_GOLD = re.compile(r"\W*([A-J])\W*")
_OPTION = re.compile(r"(?:^(?:(?i:option|choice|answer)\b)?|\()\s*([A-Ja-j])(?:\s*[).:]|$)")


def version() -> str:
    """math-verify's version, and that of the rules around it."""
    return f"math_verify {version_of('math-verify')} rules {RULES}"


def _splits(answer: str) -> bool:
    r"""Whether a number is beside the words of a \text{}, and another one in them or on their other side."""
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
        return True  # math-verify would take the last side for the answer
    constants = [value for value in values if is_expression(value) and getattr(value[0], "is_number", False)]
    return any(not equal(list(constants[-1]), list(value)) for value in constants[:-1])


HEDGES: dict[str, Callable[[str], bool]] = {
    "a word that offers a choice or takes something back": lambda answer: bool(CHOICE.search(plain(answer))),
    "numbers side by side": lambda answer: bool(_NUMBERS.search(answer)),
    "numbers around words": _splits,
    "several values": lambda answer: several(read(answer)),
    "sides that differ": _inconsistent,
}
"""Why an answer is more than one guess at a gold with one value; the last rule holds for every gold."""


def hedge(gold: str, answer: str) -> str:
    """The rule by which `answer` is more than one guess at `gold`; empty where none says so."""
    one = not several(read(gold)) and not CHOICE.search(plain(gold))
    rules = HEDGES if one else {"sides that differ": _inconsistent}
    if len(option(answer)) > len(option(gold)) > 0:
        return "several options"
    return next((name for name, breaks in rules.items() if breaks(answer)), "")


def same_text(gold: str, answer: str) -> bool:
    """Whether two texts are the same but for case, decoration and a decimal comma."""
    return _key(gold) == _key(answer)


def _key(text: str) -> str:
    return _DECIMAL_COMMA.sub(r"\1.\2", plain(text).casefold()) if _DECIMAL_COMMA.fullmatch(text) else _bare(text)


def _bare(text: str) -> str:
    return plain(text).casefold().rstrip(".")


@lru_cache(maxsize=512)
def same(gold: str, answer: str) -> bool:
    """Whether two texts have the same value; `answer` may have a unit."""
    if same_text(gold, answer):
        return True
    if (wanted := bases(gold)) and (named := bases(answer)) and wanted != named:
        return False
    units = not _VARIABLE.search(gold)  # "4t" is a product
    return equal(list(read(gold, units)), list(read(answer, units)))


@lru_cache(maxsize=512)
def gold_of(gold: str) -> str | None:
    """The answer in the text of a gold; None where it is meant as mathematics but nothing can read it."""
    found = marked(gold)
    text = spelled(", ".join(found.beside) if found else gold)
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


def evaluated(gold: str, answer: str) -> bool:
    """Whether `answer`, which has the value of `gold`, says it and leaves nothing to be done."""
    given, number = set(OPERATION.findall(gold)), literal(read(gold))
    return any(
        (said == answer or same(gold, said))
        and not set(OPERATION.findall(said)) - given
        and (literal(read(said)) or not number)
        for said in (answer, *sides_of(answer))
    )


def compared(gold: str, answer: str) -> Status:
    """The status of an answer that is one guess."""
    if _OPTION_GOLD.fullmatch(plain(gold)) and (named := option(answer)):
        return "correct" if named == option(gold) else "wrong"
    if same_text(gold, answer):
        return "correct"
    if same(gold, answer):
        return "correct" if evaluated(gold, answer) else "unevaluated"
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
    return judged(wanted, answer)


def judged(gold: str, answer: str) -> Verdict:
    """The verdict on one marked answer."""
    text = spelled(answer)
    if not same_text(gold, text) and (rule := hedge(gold, text)):
        return hedged(answer, f"{rule}: {answer}")
    return Verdict(compared(gold, text), answer)


def prediction(gold: str, text: str) -> Verdict:
    """The verdict on a text that is an answer by itself."""
    answer = bare(text)
    sentence = bool(_WORDS.search(TEXT.sub("", spelled(answer))))
    if sentence:
        answer = _DENIED.sub("", answer)
    if sentence and len(answer) > LONGEST_ANSWER:
        verdict = Verdict(compared(gold, spelled(answer)), answer)
    else:
        verdict = judged(gold, answer)
    if verdict.status == "unparsable" or (sentence and verdict.status == "wrong" and not verdict.detail):
        found = equal(list(read(gold)), search(text))
        return Verdict("correct", answer) if found else verdict
    return verdict
