r"""Equality of two values that `reading` reads: by math-verify, corrected.

- numbers are equal if they agree in as many digits as their size asks for, and at least at six decimals;
- expressions that clearly differ, or clearly do not, are compared without `simplify`;
- `i` is the imaginary unit, unless a sum or product counts with it;
- a decimal gold with at least two decimals and three digits, `0.714`, equals an exact answer that rounds to it;
- functions are equal under another name of their variable: `f(m) = 2m` and `f(n) = 2n`.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from math_verify import verify
from mpmath import floor, log10
from sympy import (
    Add,
    Derivative,
    Eq,
    Expr,
    Float,
    I,
    Integer,
    Integral,
    Limit,
    MatrixExpr,
    Mul,
    Pow,
    Product,
    Rational,
    Sum,
    Symbol,
    UnevaluatedExpr,
    expand,
    preorder_traversal,
    simplify,
)
from sympy.core.function import AppliedUndef
from sympy.functions.elementary.trigonometric import TrigonometricFunction

from mcpo_cli.grading.reading import IMAGINARY, PERCENT, Value, is_expression, read

DECIMALS, SIGNIFICANT, MOST_DECIMALS = 6, 3, 1000
"""Decimals at which floats are compared; small numbers at more (MOST_DECIMALS at most), for SIGNIFICANT digits."""
CLEAR_DIFFERENCE = 1e-3  # more than any rounding
EXACT_DIGITS, PROVEN = 12, 2000
"""Digits in which expressions without decimals are compared first, and digits that show that numbers are equal."""
MOST_VARIABLES = 4
"""Variables of expressions that are compared where they are real."""
LARGEST_POLYNOMIAL, LARGEST_POWER = 100, 8
"""Polynomials with more parts, or with higher powers, are left to math-verify."""


_NOT_QUICK = (UnevaluatedExpr, Sum, Product, Integral, Limit, Derivative, MatrixExpr)
"""Excluded from the quick comparison: percentages, which may equal their number, costly expressions, matrices."""

_DECIMAL = re.compile(r"-?(\d*)\.(\d{2,})")


def equal(gold: Value, answer: Value, **options: Any) -> bool:
    """True if math-verify calls two values equal, small numbers also to three significant digits; not symmetric."""
    gold, answer = _complex(gold, answer)
    if not options and (verdict := False if _another(gold, answer) else _quick(gold, answer)) is not None:
        return verdict
    options = {"timeout_seconds": None, "allow_set_relation_comp": True, **options}
    if not verify(gold, _renamed(gold, answer), **options):
        return _where_real(gold, answer)
    power = min((exponent for value in [*gold, *answer] for exponent in _exponents(value)), default=0)
    decimals = min(SIGNIFICANT - 1 - power, MOST_DECIMALS)
    if decimals <= DECIMALS:
        return True
    return bool(verify(gold, answer, **{**options, "float_rounding": decimals, "numeric_precision": decimals + 9}))


def _complex(*values: Value) -> list[Value]:
    """Two expressions with the imaginary unit for i, unless i may count something."""
    firsts = [value[0] for value in values if value and isinstance(value[0], Expr)]
    if len(firsts) < len(values) or any(first.has(*_NOT_QUICK) for first in firsts):
        return list(values)
    return [[value[0].subs(IMAGINARY, I), *value[1:]] for value in values]


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
    gap = Add(first, Mul(-1, second, evaluate=False), evaluate=False)
    return True if all(map(_is_polynomial, values)) and expand(gap) == 0 else None


def _may_be_noise(values: Sequence[Expr], sizes: Sequence[Expr]) -> bool:
    r"""True if all sizes are tiny and may be noise, as for \sin(x - x) and \sin(\pi)^2."""
    tiny = max(map(abs, sizes)) < Float(10) ** -EXACT_DIGITS
    return bool(tiny) and any(value.free_symbols or value.has(TrigonometricFunction) for value in values)


def _another(gold: Value, answer: Value) -> bool:
    r"""True if the gold is a letter with a name, `\mu`, and the answer an expression without it, such as m u."""
    first, second = (value[0] if value else None for value in (gold, answer))
    has_name = isinstance(first, Symbol) and len(first.name) > 1
    return has_name and isinstance(second, Expr) and first not in second.free_symbols


def _nearly(difference: Expr, sizes: Sequence[Expr]) -> bool:
    """True if two numbers agree in their first EXACT_DIGITS digits, whatever their size."""
    largest = max(map(abs, sizes))
    return bool(difference <= largest * Float(10) ** -EXACT_DIGITS)


def _is_zero(first: Expr, second: Expr) -> bool:
    """True if no digit of two numbers without decimals differs."""
    if isinstance(first, Rational) and isinstance(second, Rational):
        return bool(first == second)
    difference = Add(first, Mul(-1, second, evaluate=False), evaluate=False).evalf(2, maxn=PROVEN)
    digits = difference.atoms(Float)
    return bool(difference == 0 or (digits and all(number._prec == 1 for number in digits)))


def _exact(value: Expr) -> dict[Float, Rational]:
    """The decimals in `value` as fractions."""
    return {number: Rational(str(number)) for number in value.atoms(Float)}


def _renamed(gold: Value, answer: Value) -> Value:
    """`answer` with the gold's variable, if both are equations of one function: f(n) = ... and f(m) = ..."""
    heads = [value[0].lhs for value in (gold, answer) if value and isinstance(value[0], Eq)]
    if len(heads) < 2 or not all(isinstance(head, AppliedUndef) for head in heads) or heads[0].func != heads[1].func:
        return answer
    names = {name: target for target, name in zip(heads[0].args, heads[1].args, strict=False) if target != name}
    free = all(isinstance(target, Symbol) and not answer[0].has(target) for target in names.values())
    return [answer[0].subs(names), *answer[1:]] if free else answer


def rounds_to(gold: Value, answer: Value) -> bool:
    """True if `gold` is a decimal, and `answer` is a number without decimals that rounds to it."""
    decimal = _DECIMAL.fullmatch(gold[-1]) if is_expression(tuple(gold)) else None
    if not decimal or len("".join(decimal.groups()).lstrip("0")) < SIGNIFICANT:
        return False
    number = answer[0] if answer else None
    if not isinstance(number, Expr) or not number.is_real or number.atoms(Symbol, Float):
        return False
    value = gold[0].doit()
    unit = value / Float(gold[-1]) * Rational(1, 10 ** len(decimal[2]))
    return bool(abs(number.evalf() - value) <= unit / 2)


def rounded(exact: str, shown: str) -> bool:
    r"""True if the number `exact` rounds to `shown`, as in `\frac{22}{7} \approx 3.1`, or if it begins with a name."""
    values = [value[0].doit() for value in map(read, (exact, shown)) if getattr((*value, None)[0], "is_number", False)]
    if len(values) < 2:
        return not re.match(r"\W*\d", exact)
    difference, decimals = abs(values[0] - values[1]).evalf(), re.search(r"\.(\d+)", shown)
    unit = Rational(1, 10 ** (len(decimals[1]) if decimals else 0)) / (100 if PERCENT.search(shown) else 1)
    return bool(difference.is_real and difference <= unit * Rational(51, 100))


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
