"""Texts that may reach a verifier of reasoning-gym which evaluates them as Python (`eval`, sympy's `parse_expr`).

Such a verifier would run a response as a program. So each text is refused unless it consists of the few words that its
set needs: these cannot form an attribute, text, index or keyword, or a name that is not listed. They can still form
endless arithmetic (`9**9**9`), which the pool's limits of time and memory stop.

`tests/unit/test_guard.py` finds every set whose verifier evaluates, and fails if one is missing here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+"
_SPACE = r"[ \t\r\n]"
_SYMBOL = r"[A-MPRT-Za-z][0-9]?"  # one letter except sympy's N, O, Q and S, which are not symbols
_FUNCTIONS = (
    *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "acot"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "log", "ln", "sqrt", "abs", "Abs", "pi"),
)


@dataclass(frozen=True)
class Guard:
    """The words that a text may be made of."""

    words: re.Pattern[str]
    longest: int
    """Most characters of a text."""
    evaluated: tuple[str, ...]
    """The texts that the verifier evaluates: `response`, the problem's `answer`, or fields of its metadata."""

    def objection(self, text: str) -> str:
        """The reason why `text` must not be evaluated; empty if it may."""
        if len(text) > self.longest:
            return f"longer than {self.longest} characters"
        position = 0
        while position < len(text):
            word = self.words.match(text, position)
            if word is None:
                return f"{text[position : position + 20]!r} is no part of an answer"
            position = word.end()
        return ""


def _arithmetic(*names: str, extra: str = "", evaluated: tuple[str, ...] = ("response",)) -> Guard:
    """Numbers, names that no letter or digit follows, `+ - * / ( )`, and the characters of `extra`."""
    name_pattern = rf"(?:{'|'.join(names)})(?![A-Za-z0-9_])|" if names else ""
    return Guard(re.compile(rf"{name_pattern}{_NUMBER}|[-+*/(){extra}]|{_SPACE}"), 4_000, evaluated)


def _characters(characters: str, evaluated: str = "response") -> Guard:
    return Guard(re.compile(rf"(?:[{characters}]|{_SPACE})+"), 100_000, (evaluated,))


_INTEGRATION = ("response", "integrand")
GUARDS: Mapping[str, Guard] = {
    "countdown": _arithmetic(),
    "puzzle24": _arithmetic(),
    "polynomial_multiplication": _arithmetic(_SYMBOL, evaluated=("response", "answer")),
    "simple_integration": _arithmetic(_SYMBOL, *_FUNCTIONS, evaluated=_INTEGRATION),
    # Its own answers hold integrals without a closed form: Integral(f, x).
    "intermediate_integration": _arithmetic(_SYMBOL, *_FUNCTIONS, "Integral", extra=",", evaluated=_INTEGRATION),
    # These four give the full score to their own text only, and evaluate any other for a partial score.
    "binary_matrix": _characters("-0-9"),
    "spiral_matrix": _characters("-0-9"),
    "n_queens": _characters("Q_"),
    "string_insertion": _characters("A-Z"),
    # These two evaluate their problem, which may come from another person's file.
    "bitwise_arithmetic": _characters("-+*()<>&|^~0-9a-fA-Fx", "problem"),
    "number_sorting": _characters(r"\[\]',.+\-0-9eE", "answer"),
}
"""The guard of each set whose verifier evaluates a text."""


class UnsafeGold(ValueError):
    """A problem that must not be evaluated."""


def objection(name: str, response: str, entry: Mapping[str, Any]) -> str:
    """The reason why the verifier of the set `name` must not be given `response`; empty if it may.

    Raises:
        UnsafeGold: the problem `entry` itself must not be evaluated.
    """
    guard = GUARDS.get(name)
    if guard is None:
        return ""
    for text in guard.evaluated:
        if text != "response" and (reason := guard.objection(_text(entry, text))):
            raise UnsafeGold(f"a problem of {name} that must not be evaluated: {reason}")
    return guard.objection(response) if "response" in guard.evaluated else ""


def _text(entry: Mapping[str, Any], name: str) -> str:
    return str(entry["answer"] if name == "answer" else entry["metadata"][name])
