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
- a decimal gold with at least two decimals and three digits, `0.714`, equals an exact answer that rounds to it;
- functions are equal under another name of their variable: `f(m) = 2m` and `f(n) = 2n`.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from latex2sympy2_extended.logic import And
from latex2sympy2_extended.math_normalization import NormalizationConfig
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from mpmath import floor, log10
from sympy import (
    Add,
    Derivative,
    EmptySet,
    Eq,
    Expr,
    Float,
    Integer,
    Integral,
    Intersection,
    Limit,
    MatrixBase,
    MatrixExpr,
    Mul,
    Number,
    Pow,
    Product,
    Rational,
    Set,
    Sum,
    Symbol,
    Tuple,
    UnevaluatedExpr,
    Union,
    expand,
    preorder_traversal,
    simplify,
)
from sympy import FiniteSet as SympyFiniteSet
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational
from sympy.functions.elementary.trigonometric import TrigonometricFunction

from mcpo_cli.grading.spelling import SPACE, TEXT, WORDS, plain, sides_of, spelled

Value = list[Any]
"""The result of math-verify's parse: [expression, its text], [text that is not an expression], or []."""

DECIMALS, SIGNIFICANT, MOST_DECIMALS = 6, 3, 1000
"""Decimals at which floats are compared; small numbers at more (MOST_DECIMALS at most), for SIGNIFICANT digits."""
CLEAR_DIFFERENCE = 1e-3  # more than any rounding
EXACT_DIGITS, PROVEN = 12, 2000
"""Digits in which expressions without decimals are compared first, and digits that show that numbers are equal."""
MOST_VARIABLES = 4
"""Variables of expressions that are compared where they are real."""
LARGEST_POLYNOMIAL, LARGEST_POWER = 100, 8
"""Polynomials with more parts, or with higher powers, are left to math-verify."""

_EVERYTHING = (LatexExtractionConfig(), ExprExtractionConfig())
_LATEX = (LatexExtractionConfig(),)
_UNITLESS = (
    LatexExtractionConfig(
        normalization_config=NormalizationConfig(malformed_operators=True, nits=True, boxed="all", units=False)
    ),
)

_NOT_QUICK = (UnevaluatedExpr, Sum, Product, Integral, Limit, Derivative, MatrixExpr)
"""Excluded from the quick comparison: percentages, which may equal their number, costly expressions, matrices."""

PERCENT = re.compile(r"\s*(?:\\?%|(?i:per\s?cent(?:age)?|pct)\b)\s*$")
_SYMBOLS = "mm|cm|dm|km|m|in|ft|yd|mi|mg|kg|g|lb|oz|ms|s|h|hr|ml|mL|l|L|J|N|W|V|Hz|Pa"
_POWER = r"(?:\s*\^\s*\{?[23]\}?)?"
_UNIT = re.compile(
    rf"(?<=[\d}}]){SPACE}*(?:{WORDS}\{{[^{{}}\d]*\}}{_POWER}|{SPACE}(?:"
    r"(?!(?:sin|cos|tan|cot|sec|csc|log|exp|sqrt|max|min|gcd|lcm|mod)\b)[A-Za-z]{3,}(?:\s[A-Za-z]{2,})*"
    rf"|(?:{_SYMBOLS}){_POWER}(?:/(?:{_SYMBOLS}){_POWER})?))$"
)
_LAST_LETTERS = re.compile(r"(?<=\d)([A-Za-z]{1,3})$")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_OR = re.compile(rf"{WORDS}\{{\s*or\s*\}}|(?<![\\A-Za-z])or(?![A-Za-z])|\\lor(?![A-Za-z])")
_DECIMAL = re.compile(r"-?(\d*)\.(\d{2,})")
_BASE = re.compile(rf"(?<=[\dA-F])_(?:(\d)|\{{\s*(?:{WORDS}\{{\s*)?\(?(\w+)\)?\s*\}}?\s*\}})")
_AFTER = (
    r"(?<=\d)\s*\^\s*\{?\s*\\circ\s*\}?\s*([CF])",
    r"(?:\\pmod|\(?\s*\\?b?mod(?![A-Za-z]))\s*\{?\s*(\w+)\s*\}?\s*\)?",
    r"[,(]\s*(?:where|with|for)?\s*[a-z]\s*\\in\s*(?:\\mathbb|\\mathbf)?\s*\{?\s*\\?([ZNQR](?:\^?[+*])?)\s*\}?\)?",
    r",?\s*where\s+\$?[a-z]\$?\s+is\s+an?(?: (?:arbitrary|any))?\s+(integer)",
    r",?\s*for (?:any|every|each|some|all)?\s*(integer)s?\s+\$?[a-z]\$?",
)
_CONDITION = re.compile(rf"\s*(?:{'|'.join(_AFTER)})\.?\s*$")
_VECTOR = re.compile(r"\\begin\{[pb]matrix\}((?:(?!\\begin|\\end).)*)\\end\{[pb]matrix\}", re.DOTALL)
_BASES = {word: str(k) for k, word in enumerate(["two", "three", "four", "five", "six", "seven", "eight", "nine"], 2)}


def search(text: str, targets: tuple[Any, ...] = _EVERYTHING) -> Value:
    """The value that math-verify itself finds in `text`."""
    value: Value = parse(text, targets, parsing_timeout=None)
    return value


def equal(gold: Value, answer: Value, **options: Any) -> bool:
    """True if math-verify calls two values equal, small numbers also to three significant digits; not symmetric."""
    if not options and (known := False if _another(gold, answer) else _quick(gold, answer)) is not None:
        return known
    options = {"timeout_seconds": None, "allow_set_relation_comp": True, **options}
    if not verify(gold, _renamed(gold, answer), **options):
        return _where_real(gold, answer)
    small = min((exponent for value in [*gold, *answer] for exponent in _exponents(value)), default=0)
    decimals = min(SIGNIFICANT - 1 - small, MOST_DECIMALS)
    if decimals <= DECIMALS:
        return True
    return bool(verify(gold, answer, **{**options, "float_rounding": decimals, "numeric_precision": decimals + 9}))


def _quick(gold: Value, answer: Value) -> bool | None:
    """The verdict on two expressions if it can be determined without `simplify`; otherwise None.

    They are unequal if they differ clearly at one point with positive symbols: by more than CLEAR_DIFFERENCE, or, if
    neither has a decimal, in the first EXACT_DIGITS digits. Exact numbers are equal if no digit of PROVEN differs. A
    decimal is not an irrational number. Two polynomials with rational coefficients are equal if their difference
    expands to 0.
    """
    values = [value[0] for value in (gold, answer) if value and isinstance(value[0], Expr)]
    if len(values) < 2 or any(isinstance(value, Symbol) or value.has(*_NOT_QUICK) for value in values):
        return None
    first, second = values
    names = sorted(first.free_symbols | second.free_symbols, key=str)
    point = {name: Float((k + 1) ** 1.37) for k, name in enumerate(names, 1)}
    sizes = [value.evalf(EXACT_DIGITS + 9, subs=point) for value in values]
    decimals = [value.has(Float) for value in values]
    difference = abs(sizes[0] - sizes[1])
    if difference.is_Float or difference == 0:
        if difference > CLEAR_DIFFERENCE and not _nearly(difference, sizes):
            return False
        if not any(decimals) and ((noise := _may_be_noise(values, sizes)) or not _nearly(difference, sizes)):
            return None if noise else False
    if not names and not decimals[0]:
        if decimals[1]:
            return None if first.doit().is_Rational else _is_zero(first, second.xreplace(_exact(second)))
        if all(size.is_number and not size.is_infinite for size in sizes):
            return _is_zero(first, second)
    same = Add(first, Mul(-1, second, evaluate=False), evaluate=False)
    return True if all(map(_is_polynomial, values)) and expand(same) == 0 else None


def _may_be_noise(values: Sequence[Expr], sizes: Sequence[Expr]) -> bool:
    r"""True if all sizes are tiny and may be noise, as of \sin(x - x) and \sin(\pi)^2."""
    tiny = max(map(abs, sizes)) < Float(10) ** -EXACT_DIGITS
    return bool(tiny) and any(value.free_symbols or value.has(TrigonometricFunction) for value in values)


def _another(gold: Value, answer: Value) -> bool:
    r"""True if the gold is a letter with a name, `\mu`, and the answer an expression without it, such as m u."""
    first, second = (value[0] if value else None for value in (gold, answer))
    named = isinstance(first, Symbol) and len(first.name) > 1
    return named and isinstance(second, Expr) and first not in second.free_symbols


def _nearly(difference: Expr, sizes: Sequence[Expr]) -> bool:
    """True if two numbers agree in their first EXACT_DIGITS digits, whatever their size."""
    largest = max(map(abs, sizes))
    return bool(difference <= largest * Float(10) ** -EXACT_DIGITS)


def _is_zero(first: Expr, second: Expr) -> bool:
    """True if no digit of two numbers without decimals differs."""
    if isinstance(first, Rational) and isinstance(second, Rational):
        return bool(first == second)
    difference = Add(first, Mul(-1, second, evaluate=False), evaluate=False).evalf(2, maxn=PROVEN)
    return bool(difference == 0 or difference._prec == 1)


def _exact(value: Expr) -> dict[Float, Rational]:
    """The decimals in `value` as fractions."""
    return {number: Rational(str(number)) for number in value.atoms(Float)}


def _renamed(gold: Value, answer: Value) -> Value:
    """`answer` with the gold's variable, if both are equations of one function: f(n) = ... and f(m) = ..."""
    heads = [value[0].lhs for value in (gold, answer) if value and isinstance(value[0], Eq)]
    if len(heads) < 2 or not all(isinstance(head, AppliedUndef) for head in heads) or heads[0].func != heads[1].func:
        return answer
    names = {theirs: ours for ours, theirs in zip(heads[0].args, heads[1].args, strict=False) if ours != theirs}
    free = all(isinstance(ours, Symbol) and not answer[0].has(ours) for ours in names.values())
    return [answer[0].subs(names), *answer[1:]] if free else answer


def rounds_to(gold: Value, answer: Value) -> bool:
    """True if `gold` is a decimal, and `answer` is a number without decimals that rounds to it."""
    shown = _DECIMAL.fullmatch(gold[-1]) if is_expression(tuple(gold)) else None
    if not shown or len("".join(shown.groups()).lstrip("0")) < SIGNIFICANT:
        return False
    number = answer[0] if answer else None
    if not isinstance(number, Expr) or not number.is_real or number.atoms(Symbol, Float):
        return False
    value = gold[0].doit()
    unit = value / Float(gold[-1]) * Rational(1, 10 ** len(shown[2]))
    return bool(abs(number.evalf() - value) <= unit / 2)


def _where_real(gold: Value, answer: Value) -> bool:
    r"""True if two exact expressions of few variables are equal wherever both are real: `\sqrt{1/m}`, `1/\sqrt{m}`."""
    values = [value[0] for value in (gold, answer) if value and isinstance(value[0], Expr)]
    if len(values) < 2 or any(value.has(Float, *_NOT_QUICK) for value in values):
        return False
    names = sorted(set().union(*(value.free_symbols for value in values)), key=str)
    if not 0 < len(names) <= MOST_VARIABLES or any(
        len(list(preorder_traversal(v))) > LARGEST_POLYNOMIAL for v in values
    ):
        return False
    real = 0
    for scale in (Float(1), Float(-1), Float("0.17"), Float("-0.17")):
        point = {name: scale * Float((k + 1) ** 1.37) for k, name in enumerate(names, 1)}
        sizes = [value.evalf(EXACT_DIGITS + 9, subs=point) for value in values]
        if all(size.is_Float for size in sizes):
            real += 1
            if not _nearly(abs(sizes[0] - sizes[1]), sizes):
                return False
    positive = {name: Symbol(f"{name}", positive=True) for name in names}
    return real > 1 and bool(simplify(values[0].subs(positive) - values[1].subs(positive)) == 0)


def _is_polynomial(value: Expr) -> bool:
    """True if `value` consists of symbols, rationals, sums, products and small powers, with at least one symbol."""
    parts = list(islice(preorder_traversal(value), LARGEST_POLYNOMIAL + 1))
    powers = [part.exp for part in parts if isinstance(part, Pow)]
    return (
        len(parts) <= LARGEST_POLYNOMIAL
        and bool(value.free_symbols)
        and all(isinstance(part, Add | Mul | Pow | Symbol | Rational) for part in parts)
        and all(isinstance(power, Integer) and 0 <= power <= LARGEST_POWER for power in powers)
    )


def _exponents(value: Any) -> Iterator[int]:
    """For each nonzero number in `value` below 1 in size, the power of ten of its first digit."""
    if isinstance(value, Expr) and value.is_number:
        size = abs(value.evalf(SIGNIFICANT))
        if size.is_Float and size < 1:
            yield int(floor(log10(size._to_mpmath(53))))
    else:
        for part in getattr(value, "args", ()):
            yield from _exponents(part)


def bases(text: str) -> set[str]:
    """The bases that the numbers of `text` name."""
    return {_BASES.get(base, base) for base in map("".join, _BASE.findall(text))}


def condition(text: str) -> str:
    r"""What an answer adds to its value: `7` of `\pmod{7}`, `Z` of `k \in \mathbb{Z}`, `C` of `^\circ C`."""
    stated = _CONDITION.search(plain(text))
    found = "".join(stated.groups("")) if stated else ""
    return "Z" if found == "integer" else found


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
    if (words := TEXT.fullmatch(text)) and any(map(str.isdigit, words[1])):
        text = words[1]
    units = units and not _of_variables(text)
    if units:
        text = _UNIT.sub("", text)
    text = _BASE.sub("", text)
    if condition(text):
        text = _CONDITION.sub("", plain(text))
    if percent := PERCENT.search(text):
        return tuple(search(f"${text[: percent.start()]}$ %", _LATEX))
    if union := _union(_OR.split(text)):
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
        both = _set(And(*first.args)) if all(isinstance(part, Relational) for part in first.args) else None
        return (both, *value[1:]) if both and len(first.free_symbols) == 1 else value
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
