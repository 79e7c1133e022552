r"""Reads the text of an answer: respells it (`spelling`), then parses it with math-verify.

math-verify (https://github.com/huggingface/Math-Verify) parses LaTeX with latex2sympy2_extended. This module handles
the texts that it misreads:

- an equation whose left side is unreadable and has no digit, `n(A \cap B) = 3`, is replaced by its right side;
- a unit after a number is dropped;
- a base, `2516_8`, which math-verify drops, is compared separately from the digits; one side may omit it;
- so are a modulus, a set of numbers or degrees after an answer, `\pmod{7}`, `k \in \mathbb{Z}`, `^\circ C`;
- inequalities and intervals joined by "or" become their union, inequalities of one variable side by side the values
  that satisfy all;
- powers of matrices are computed, and a matrix of one row or column equals a tuple;
- a name is one symbol: math-verify makes the symbols of `\sqrt{3}i` and `i\sqrt{3}` differ.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from latex2sympy2_extended.logic import And
from latex2sympy2_extended.math_normalization import NormalizationConfig
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse
from sympy import (
    Basic,
    EmptySet,
    Eq,
    Expr,
    Intersection,
    MatrixBase,
    MatrixExpr,
    Mul,
    Number,
    Pow,
    Set,
    Symbol,
    Tuple,
    UnevaluatedExpr,
    Union,
)
from sympy import FiniteSet as SympyFiniteSet
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

from mcpo_cli.grading.spelling import SPACE, WORDS, items_of, plain, sides_of, spelled

Value = list[Any]
"""The result of math-verify's parse: [expression, its text], [text that is not an expression], or []."""

IMAGINARY = Symbol("i", real=False)
LARGEST_POWER = 8
"""Higher powers of matrices stay powers."""

_EVERYTHING = (LatexExtractionConfig(), ExprExtractionConfig())
_LATEX = (LatexExtractionConfig(),)
_UNITLESS = (
    LatexExtractionConfig(
        normalization_config=NormalizationConfig(malformed_operators=True, nits=True, boxed="all", units=False)
    ),
)

PERCENT = re.compile(rf"\s*(?:\\?%|(?i:per\s?cent(?:age)?|pct)\b)(?:\s*{WORDS}\{{[^{{}}\d]*\}}|(?:\s[a-z][a-z]+)*)\s*$")
_SYMBOLS = "mm|cm|dm|km|m|in|ft|yd|mi|mg|kg|g|lb|oz|ms|s|h|hr|ml|mL|l|L|J|N|W|V|Hz|Pa"
_POWER = r"(?:\s*\^\s*\{?-?[123]\}?)?"
_UNIT = re.compile(
    rf"(?<=[\d}}]){SPACE}*(?:{WORDS}\{{(?:[^{{}}\d]|(?<=[a-z^])[23]|(?<=\^-)[123])*\}}{_POWER}|{SPACE}(?:"
    r"(?!(?:sin|cos|tan|cot|sec|csc|log|exp|sqrt|max|min|gcd|lcm|mod)\b)[A-Za-z]{3,}(?:[\s/][A-Za-z]{2,})*"
    rf"|(?:{_SYMBOLS}){_POWER}(?:/(?:{_SYMBOLS}){_POWER})?))$"
)
_LAST_LETTERS = re.compile(r"(?<=\d)([A-Za-z]{1,3})$")
_COMMAND = re.compile(r"\\[A-Za-z]+")
OR = re.compile(rf"{WORDS}\{{\s*or\s*\}}|(?<![\\A-Za-z])or(?![A-Za-z])|\\lor(?![A-Za-z])")
_BASE = re.compile(rf"(?<=[\dA-F])_(?:(\d)|\{{\s*(?:{WORDS}\{{\s*)?\(?(\w+)\)?\s*\}}?\s*\}})")
_AFTER = (
    r"(?<=\d)\s*\^\s*\{?\s*\\circ\s*\}?\s*([CF])",
    r"(?<=\d)\s*([AaPp])(?:\.\s?)?[Mm]\b",
    r"(?:\\pmod|\(?\s*\\?b?mod(?![A-Za-z]))\s*\{?\s*(\w+)\s*\}?\s*\)?",
    r"[,(]\s*(?:where|with|for)?\s*[a-z]\s*\\in\s*(?:\\mathbb|\\mathbf)?\s*\{?\s*\\?([ZNQR](?:\^?[+*])?)\s*\}?\)?",
    r",?\s*where\s+\$?[a-z]\$?\s+is\s+an?(?: (?:arbitrary|any))?\s+(integer)",
    r",?\s*for (?:any|every|each|some|all)?\s*(integer)s?\s+\$?[a-z]\$?",
)
CONDITION = re.compile(rf"\s*(?:{'|'.join(_AFTER)})\.?\s*$")
_VECTOR = re.compile(r"\\begin\{[pb]matrix\}((?:(?!\\begin|\\end).)*)\\end\{[pb]matrix\}", re.DOTALL)
_BASES = {word: str(k) for k, word in enumerate(["two", "three", "four", "five", "six", "seven", "eight", "nine"], 2)}


def search(text: str, targets: tuple[Any, ...] = _EVERYTHING) -> Value:
    """The value that math-verify itself finds in `text`."""
    value: Value = parse(text, targets, parsing_timeout=None)
    return [_one_symbol_each(part) for part in value]


def _one_symbol_each(part: Any) -> Any:
    """`part` with one symbol for each name."""
    symbols = part.atoms(Symbol) if isinstance(part, Basic | MatrixBase) else ()
    targets = {symbol: Symbol(symbol.name, real=symbol.name != IMAGINARY.name) for symbol in symbols}
    return part.xreplace(targets) if any(symbol != target for symbol, target in targets.items()) else part


def bases(text: str) -> set[str]:
    """The bases that the numbers of `text` name."""
    return {_BASES.get(base, base) for base in map("".join, _BASE.findall(text))}


def condition(text: str) -> str:
    r"""What an answer adds to its value: `7` of `\pmod{7}`, `Z` of `k \in \mathbb{Z}`, `C` of `^\circ C`."""
    stated = CONDITION.search(plain(text))
    addition = "".join(stated.groups("")) if stated else ""
    return "Z" if addition == "integer" else addition.upper()


def hours(time: Sequence[str], half: str) -> list[int]:
    """A time in numbers, of 24 hours if it says its half of the day, A or P: 5:30 pm is 17:30."""
    hour, *parts = map(int, time)
    return [hour % 12 + 12 * (half == "P") if half in ("A", "P") else hour, *parts]


def multiplies(text: str) -> bool:
    """True if `text` is an equation of a multiple of a variable, as `3x = 5` is, which does not say its value."""
    left, *others = sides_of(text)
    value = read(left)[0] if others and is_expression(read(left)) else None
    symbols = value.free_symbols if isinstance(value, Expr) else ()
    return len(symbols) == 1 and isinstance(factor := value / next(iter(symbols)), Number) and factor != 1


def as_tuple(text: str) -> str:
    """A matrix of one row or one column as a tuple; `text` if it is anything else."""
    vector = _VECTOR.fullmatch(text.strip())
    entries = re.split(r"&|\\\\", vector[1].strip().removesuffix(r"\\")) if vector else []
    return f"({', '.join(entries)})" if vector and not ("&" in vector[1] and r"\\" in vector[1]) else text


@lru_cache(maxsize=512)  # samples of a problem share the gold, and many answers
def read(text: str, units: bool = True) -> tuple[Any, ...]:
    """The value of the whole `text` as one LaTeX expression; units: whether to drop a unit at its end."""
    text = spelled(text)
    if text.count("{") != text.count("}"):
        return ()
    units = units and not _of_variables(text)
    if units:
        text = _UNIT.sub("", text)
    text = _BASE.sub("", text)
    if condition(text):
        text = CONDITION.sub("", plain(text))
    if percent := PERCENT.search(text):
        return tuple(search(f"${sides_of(text[: percent.start()])[-1]}$ %", _LATEX))
    if union := _union(OR.split(text)):
        return union
    value = _combined(tuple(search(rf"\boxed{{{text}}}", _LATEX if units else _UNITLESS)))
    if units and not is_expression(value):  # math-verify takes the last letter of `a + b \ge c` for a unit
        value = next(filter(is_expression, [read(text, False)]), value)
    sides = sides_of(text)
    if not is_expression(value) and len(sides) == 2 and not any(map(str.isdigit, sides[0])):
        return read(sides[1], units)
    return value


def _combined(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """`value` with powers of matrices computed, and with inequalities side by side as one set."""
    first = value[0] if value else None
    if isinstance(first, SympyFiniteSet) and len(first) > 1:
        solutions = _set(And(*first.args)) if all(isinstance(part, Relational) for part in first.args) else None
        return (solutions, *value[1:]) if solutions and len(first.free_symbols) == 1 else value
    return (_computed(first), *value[1:]) if isinstance(first, Expr | MatrixExpr) else value


def _computed(value: Any) -> Any:
    """`value` with small powers of matrices of numbers as matrices; sympy keeps them as powers."""
    powers = {
        power: power.base**power.exp
        for power in value.atoms(Pow)
        if isinstance(power.base, MatrixBase)
        and power.base.is_square
        and power.exp.is_Integer
        and (0 < power.exp <= LARGEST_POWER or (power.exp == -1 and power.base.det() != 0))
    }
    computed = value.xreplace(powers).doit() if powers else value
    return computed.as_mutable() if isinstance(computed, MatrixBase) else computed


def _of_variables(text: str) -> bool:
    """True if letters after the last number occur before it: in `a^2 + b^2 - 2ab` they are no unit."""
    end = _LAST_LETTERS.search(text)
    return end is not None and any(letter in _COMMAND.sub("", text[: end.start()]) for letter in end[1])


def _union(texts: list[str]) -> tuple[Any, ...]:
    """The union of the sets in `texts`, one of them an inequality or an interval; empty if a text is not a set."""
    values = [read(text)[:1] for text in texts] if len(texts) > 1 else []
    sets = [_set(value[0]) for value in values if value]
    if not any(map(several, values)) or len(sets) < len(texts) or None in sets:
        return ()
    return Union(*sets), " or ".join(texts)


def _set(value: Any) -> Set | None:
    """The set of a variable's values by an interval, or by equations and inequalities of it and numbers."""
    if isinstance(value, And):
        sets = [_set(part) for part in value.args]
        return None if None in sets else Intersection(*sets)
    if isinstance(value, Relational) and {type(side) is Symbol or side.is_number for side in value.args} == {True}:
        return value.as_set() if len(value.free_symbols) == 1 else None
    return value if isinstance(value, Set) else None


def is_expression(value: tuple[Any, ...]) -> bool:
    """True if `value` holds a parsed expression, not only text."""
    return bool(value) and not isinstance(value[0], str)


def several(value: tuple[Any, ...]) -> bool:
    """True if `value` has more than one value: a set, a tuple, an interval or an inequality."""
    first = value[0] if value else None
    if isinstance(first, Eq):
        first = first.rhs
    if isinstance(first, SympyFiniteSet | Tuple):
        return len(first) > 1
    if isinstance(first, MatrixBase):
        return 1 in first.shape and len(first) > 1
    if isinstance(first, And):
        return not all(isinstance(relation, Eq) for relation in first.args)
    return isinstance(first, Relational) or (isinstance(first, Set) and first is not EmptySet)


def repeats(text: str) -> bool:
    """True if `text` is a list, or a set in braces, that has a value more than once."""
    first = read(text)[0] if is_expression(read(text)) else None
    values = first.rhs if isinstance(first, Eq) else first
    return isinstance(values, SympyFiniteSet) and len(items_of(text)) > len(values)


def literal(value: tuple[Any, ...]) -> bool:
    r"""True if `value` is a written-out number or an equation with one: `42`, `\frac{84}{2}`, `x = 42`."""
    first = value[0] if value else None
    if isinstance(first, Eq) and isinstance(first.lhs, Symbol | AppliedUndef):
        first = first.rhs
    factors = first.args if isinstance(first, Mul) else (first,)
    numbers = [part for part in factors if isinstance(part, Number)]
    others = [part for part in factors if not isinstance(part, Number)]
    scale = all(part == UnevaluatedExpr(Number(1) / 100) or _power_of_ten(part) for part in others)
    return scale and len(numbers) <= 1 and len(others) <= 1


def _power_of_ten(part: Any) -> bool:
    return isinstance(part, Pow) and part.base == 10 and part.exp.is_Integer
