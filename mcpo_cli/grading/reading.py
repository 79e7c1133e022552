r"""Reads the text of an answer: rewrites equivalent spellings to one, then parses it with math-verify.

math-verify (https://github.com/huggingface/Math-Verify) parses LaTeX with latex2sympy2_extended. What it misreads or
cannot read is rewritten first, by the table `SPELLINGS` and four rules that a pattern cannot express:

- parts labelled in order, `(a) 3, (b) 4`, become a tuple: `(3, 4)`;
- an equation that ends with a lone variable, `42 = x`, is reversed; one whose left side is unreadable and has no digit,
  `n(A \cap B) = 3`, is replaced by its right side;
- words before a number, `The largest n is 34`, and a unit after it are dropped;
- a base, `2516_8`, which math-verify drops, is compared separately from the digits; one side may omit it.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any

from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended.latex2sympy2 import _Latex2Sympy
from latex2sympy2_extended.logic import And
from latex2sympy2_extended.math_normalization import NormalizationConfig
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, parser, verify
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
    Limit,
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
    expand,
    preorder_traversal,
)
from sympy import FiniteSet as SympyFiniteSet
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

from mcpo_cli.grading.extract import CHOICE, bare

Value = list[Any]
"""The result of math-verify's parse: [expression, its text], [text that is no expression], or []."""

LONGEST_SPELLING = 2000
"""Texts with more characters are not rewritten."""
DECIMALS, SIGNIFICANT, MOST_DECIMALS = 6, 3, 1000
"""Decimals at which floats are compared; small numbers at enough more (at most MOST_DECIMALS) for SIGNIFICANT ones."""
CLEAR_DIFFERENCE = 1e-3  # more than any rounding
LARGEST_POLYNOMIAL, LARGEST_POWER = 100, 8
"""Polynomials with more parts, or with higher powers, are left to math-verify."""

_EVERYTHING = (LatexExtractionConfig(), ExprExtractionConfig())
_LATEX = (LatexExtractionConfig(),)
_UNITLESS = (
    LatexExtractionConfig(
        normalization_config=NormalizationConfig(malformed_operators=True, nits=True, boxed="all", units=False)
    ),
)

_NOT_QUICK = (UnevaluatedExpr, Sum, Product, Integral, Limit, Derivative)
"""Excluded from the quick comparison: percentages, which may equal their number, and costly expressions."""

_SPACE = r"(?:[\s~]|\\[,;:! ]|\\thinspace )"
_WORDS = r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mbox)\s*"
TEXT = re.compile(_WORDS + r"\{([^{}]*)\}")
r"""Text inside a formula: words, or an upright number."""
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_AFTER = {"dozen": r" \\cdot 12", "squared": "^{2}", "cubed": "^{3}", "factorial": "!"}
_NUMBER = r"(-?(?:[\d.]+(?:/\d+)?|\\frac\{\d+\}\{\d+\}|\\infty))"
_REALS = r"(?:\w+ is )?(?:all |any )?(?:the )?(?:real )?(?:numbers? |values? )?(?:of \w+ )?(?:that are )?"

CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad"),  # invisible
        **dict.fromkeys("\u00a0\u2009\u202f", " "),
        **dict.fromkeys("\u2212\u2013", "-"),
        **dict.fromkeys("\u2019\u2032", "'"),
        **dict.fromkeys("€£¥₹"),
        "\u00b2": "^{2}",
        "\u00b3": "^{3}",
        "\u00b0": r"^\circ",
        "\u00bd": r"\frac{1}{2}",
        "\u00bc": r"\frac{1}{4}",
        "\u00be": r"\frac{3}{4}",
        "\u2248": r"\approx ",
        "\uff1a": ":",
        "\uff0c": ",",
    }
)
SPELLINGS: tuple[tuple[str, str], ...] = (
    # decoration
    (r"\\(?:underline|boldsymbol|bm|bf)\s*\{([^{}]*)\}", r"{\1}"),
    (r"\\(?:text)?color\s*\{\w+\}", ""),
    (r"\\(?:mathrm|rm)\s*\{\s*(e|i|\\pi)\s*\}", r" \1"),
    # text before an answer
    (rf"^{_WORDS}\{{(?![^{{}}]*\bthan\b)[^{{}}\d]*(?::|=|\bis|\bequals)[\s~]*\}}", ""),
    (rf"^(?:{_WORDS}\{{)?\s*(?:approximately|approx\.?|about|roughly)(?:\s*\}}|\s)\s*(?=[-\d\\$])", ""),
    (r"^\s*(?:=|\\(?:approx|simeq|sim|doteq)(?![A-Za-z]))\s*", ""),
    # arguments without braces
    (r"\\([dtc]?frac)\s*(\d)\s*(\d)", r"\\\1{\2}{\3}"),
    (r"\\[dt]?binom\s*([0-9A-Za-z])\s*([0-9A-Za-z])", r"\\binom{\1}{\2}"),
    (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
    (r"\\log_\s*(\d)", r"\\log_{\1}"),
    (r"\^\s*(-\d+)", r"^{\1}"),
    # numbers
    (rf"(?<![\d.,])(\d{{1,3}})((?:(?:{_SPACE}|')\d{{3}})++)(?!\d)", "thousands"),
    (r"(?<=[A-Za-z] )(\d{1,3})((?:,\d{3})++)(?![\d,])", "thousands"),
    (rf"(?<![\w.,/^\\}}])(\d+){_SPACE}+(\d+)\s*/\s*(\d+)(?![\d/])", r"\1\\frac{\2}{\3}"),
    (r"(?<![\w.\\])(\d+(?:\.\d+)?)[eE]\+?(-?)0*(\d+)(?![\w.])", r"\1 \\times 10^{\2\3}"),
    (r"(?<=\d)\s*[x*]\s*10\s*\^", r" \\times 10^"),
    *((rf"(?<=\d){_SPACE}*{_WORDS}\{{[\s~]*{word}\b", rf" \\times 10^{{{k}}}\\text{{") for word, k in _SCALES.items()),
    *((rf"(?<=\d){_SPACE}*{word}\b", rf" \\times 10^{{{k}}}") for word, k in _SCALES.items()),
    *((rf"(?<=\d){_SPACE}*(?:{_WORDS}\{{)?\s*{word}\b(?:\s*\}})?", sign) for word, sign in _AFTER.items()),
    # primes, which math-verify drops: of functions, of units, and others
    (r"\^\s*\{?\s*\\prime\s*\}?", "'"),
    (r"(?<=[A-Za-z])''(?![A-Za-z'])", "_{primes}"),
    (r"(?<=[A-Za-z])'(?![A-Za-z'])", "_{prime}"),
    (r"(?<=\d)'+\s*$", ""),
    (r"(?<=\d)'(?=\d)", " "),
)
r"""Patterns and replacements, applied in this order; the replacement `thousands` joins the digits."""
IN_WORDS: tuple[tuple[str, str], ...] = (
    (r"all real numbers|all reals|any real number", r"(-\\infty,\\infty)"),
    (r"(?:there (?:is|are) )?no (?:real )?solutions?|(?:the )?empty set", r"\\emptyset"),
    (rf"{_REALS}(?:greater|more|larger) than {_NUMBER}", r"(\1,\\infty)"),
    (rf"{_REALS}(?:greater|more|larger) than or equal to {_NUMBER}|{_REALS}at least {_NUMBER}", r"[\1\2,\\infty)"),
    (rf"{_REALS}(?:less|smaller) than {_NUMBER}", r"(-\\infty,\1)"),
    (rf"{_REALS}(?:less|smaller) than or equal to {_NUMBER}|{_REALS}at most {_NUMBER}", r"(-\\infty,\1\2]"),
    (rf"{_REALS}(?:strictly )?between {_NUMBER} and {_NUMBER}", r"(\1,\2)"),
    (rf"{_REALS}(?:between|from) {_NUMBER} (?:and|to) {_NUMBER},? inclusive", r"[\1,\2]"),
)
"""Sets in words: a pattern for the whole answer, and its LaTeX."""

_SPELLINGS = tuple((re.compile(pattern), replacement) for pattern, replacement in SPELLINGS)
_IN_WORDS = tuple((re.compile(pattern, re.IGNORECASE), replacement) for pattern, replacement in IN_WORDS)
_PART = re.compile(rf"(?:^|(?<=[\s,;}}]))(?:{_WORDS}\{{)?\s*\(?([a-h]|i{{1,3}}|iv|v)(?:\)|\.(?!\d)|:)\s*\}}?\s*")
_PART_ENDS = re.compile(r"(?:[\s,;]|\\text\s*\{[\s,;]*and[\s,;]*\}|\band\b)+$")
_LABELS = (tuple("abcdefgh"), ("i", "ii", "iii", "iv", "v"))
_EQUALS = re.compile(r"(?<![\\<>!:])=(?!=)|[{}()\[\]]")
_LONE = re.compile(r"\s*[A-Za-z](?:_\{?\w+\}?)?\s*")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_BEFORE = re.compile(
    r"^(?:[^\d=\\]*[A-Za-z]{2}[^\d=\\]*\b(?:is|are|be|equals|equal to|comes to|gives)\s*:?|[A-Za-z ]{3,}:)"
    r"\s+(?=[-$\d\\(.])"
)
_PERCENT = re.compile(r"\s*(?:\\?%|(?i:per\s?cent(?:age)?|pct)\b)\s*$")
_PLAIN = re.compile(r"(-?)(?:([0-9]{1,15})|\\[dt]?frac\{([0-9]{1,15})\}\{(?!0+\})([0-9]{1,15})\})")
_SYMBOLS = "mm|cm|dm|km|m|in|ft|yd|mi|mg|kg|g|lb|oz|ms|s|h|hr|ml|mL|l|L|J|N|W|V|Hz|Pa"
_POWER = r"(?:\s*\^\s*\{?[23]\}?)?"
_UNIT = re.compile(
    rf"(?<=[\d}}]){_SPACE}*(?:{_WORDS}\{{[^{{}}\d]*\}}{_POWER}|{_SPACE}(?:"
    r"(?!(?:sin|cos|tan|cot|sec|csc|log|exp|sqrt|max|min|gcd|lcm|mod)\b)[A-Za-z]{3,}(?:\s[A-Za-z]{2,})*"
    rf"|(?:{_SYMBOLS}){_POWER}(?:/(?:{_SYMBOLS}){_POWER})?))$"
)
_BASE = re.compile(rf"(?<=[\dA-F])_(?:(\d)|\{{\s*(?:{_WORDS}\{{\s*)?\(?(\w+)\)?\s*\}}?\s*\}})")
_BASES = {word: str(k) for k, word in enumerate(["two", "three", "four", "five", "six", "seven", "eight", "nine"], 2)}


class _TwoStages(_Latex2Sympy):
    """Parses with ANTLR's quick prediction (SLL) first, and with full prediction (LL) if that finds a syntax error.

    LL parses what SLL accepts in the same way, but several times slower
    (https://www.antlr.org/api/Java/org/antlr/v4/runtime/atn/PredictionMode.html). In one rule SLL always fails at a
    letter with an exponent and LL is cheap, so that rule always uses LL.
    """

    quick = False

    def create_parser(self, latex_str: str) -> Any:
        """The parser of `latex_str`."""
        made = super().create_parser(latex_str)
        if self.quick:
            simulator = made._interp
            predict, states = simulator.adaptivePredict, simulator.atn.decisionToState

            def adaptive_predict(tokens: Any, decision: int, context: Any) -> Any:
                full = states[decision].ruleIndex == made.RULE_atom_expr
                simulator.predictionMode = PredictionMode.LL if full else PredictionMode.SLL
                return predict(tokens, decision, context)

            simulator.adaptivePredict = adaptive_predict
        return made

    def parse(self, latex_str: str) -> Any:
        """The expression in `latex_str`."""
        self.quick = True
        with suppress(Exception):
            return super().parse(latex_str)
        self.quick = False
        return super().parse(latex_str)

    def parse_number(self, text: str) -> Any:
        """The number in `text`; avoids sympy for integers, where it takes a millisecond."""
        return Integer(int(text)) if text.isascii() and text.isdigit() else super().parse_number(text)


def _latex2sympy(latex_str: str, is_real: bool | None = None, convert_degrees: bool = False, **_options: Any) -> Any:
    return _TwoStages(None, is_real, convert_degrees).parse(latex_str)


parser.latex2sympy = _latex2sympy  # called by math-verify's parse


def search(text: str, targets: tuple[Any, ...] = _EVERYTHING) -> Value:
    """The value that math-verify itself finds in `text`."""
    value: Value = parse(text, targets, parsing_timeout=None)
    return value


def equal(gold: Value, answer: Value, **options: Any) -> bool:
    """Whether math-verify calls two values equal, small numbers also to three significant digits; not symmetric."""
    if not options and (known := _quick(gold, answer)) is not None:
        return known
    options = {"timeout_seconds": None, "allow_set_relation_comp": True, **options}
    if not verify(gold, answer, **options):
        return False
    small = min((exponent for value in [*gold, *answer] for exponent in _exponents(value)), default=0)
    decimals = min(SIGNIFICANT - 1 - small, MOST_DECIMALS)
    if decimals <= DECIMALS:
        return True
    return bool(verify(gold, answer, **{**options, "float_rounding": decimals, "numeric_precision": decimals + 9}))


def _quick(gold: Value, answer: Value) -> bool | None:
    """math-verify's verdict on two expressions if it can be known without `simplify`; else None.

    They are unequal if they differ by more than CLEAR_DIFFERENCE at one point with positive symbols. Two polynomials
    with rational coefficients are equal if their difference expands to 0.
    """
    values = [value[0] for value in (gold, answer) if value and isinstance(value[0], Expr)]
    if len(values) < 2 or any(isinstance(value, Symbol) or value.has(*_NOT_QUICK) for value in values):
        return None
    first, second = values
    names = sorted(first.free_symbols | second.free_symbols, key=str)
    difference = Add(first, Mul(-1, second, evaluate=False), evaluate=False)
    size = abs(difference.evalf(15, subs={name: Float(k + 1.37) for k, name in enumerate(names, 1)}))
    if size.is_Float and size > CLEAR_DIFFERENCE:
        return False
    return True if all(map(_is_polynomial, values)) and expand(difference) == 0 else None


def _is_polynomial(value: Expr) -> bool:
    """Whether `value` consists of symbols, rationals, sums, products and small powers, with at least one symbol."""
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


@lru_cache(maxsize=512)
def spelled(text: str) -> str:
    """`text` without decoration, with equivalent spellings rewritten to one."""
    text = bare(text.translate(CHARACTERS))
    if len(text) > LONGEST_SPELLING:
        return text
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(_joined if replacement == "thousands" else replacement, text)
    words = " ".join(plain(text).split())
    for pattern, replacement in _IN_WORDS:
        if match := pattern.fullmatch(words):
            return match.expand(replacement)
    if (before := _BEFORE.match(text)) and not CHOICE.search(before[0]):
        text = text[before.end() :]
    return _turned(_named_parts(text)).strip()


def _joined(number: re.Match[str]) -> str:
    return re.sub(r"\D", "", number[0])


def _named_parts(text: str) -> str:
    """A tuple of the parts labelled a, b, ... or i, ii, ...; `text` if there are none."""
    matches = list(_PART.finditer(text))
    labels = tuple(part[1] for part in matches)
    if len(matches) < 2 or matches[0].start() > 0 or not any(labels == names[: len(labels)] for names in _LABELS):
        return text
    ends = [*(part.start() for part in matches[1:]), len(text)]
    parts = [_PART_ENDS.sub("", text[part.end() : end]) for part, end in zip(matches, ends, strict=True)]
    return f"({', '.join(parts)})" if all(parts) else text


def _turned(text: str) -> str:
    """`text` with a lone variable at the end of its equation moved to the front, if the rest has no variable."""
    *sides, last = sides_of(text)
    values = "".join(sides)
    letters = any(map(str.isalpha, _COMMAND.sub("", values)))
    turns = sides and _LONE.fullmatch(last) and any(map(str.isdigit, values)) and not letters
    return "=".join([last, *sides]) if turns else text


def sides_of(answer: str) -> list[str]:
    """The sides of `answer` between equals signs outside brackets."""
    depth, ends = 0, [-1]
    for sign in _EQUALS.finditer(answer):
        if sign[0] != "=":
            depth += 1 if sign[0] in "{([" else -1
        elif depth == 0:
            ends.append(sign.start())
    return [answer[start + 1 : end] for start, end in pairwise([*ends, len(answer)])]


def plain(text: str) -> str:
    r"""`text` without text commands such as \text{}."""
    return TEXT.sub(r"\1", text).strip()


def bases(text: str) -> set[str]:
    """The bases that the numbers of `text` name."""
    return {_BASES.get(base, base) for base in map("".join, _BASE.findall(text))}


@lru_cache(maxsize=512)  # samples of a problem share the gold, and many answers
def read(text: str, units: bool = True) -> tuple[Any, ...]:
    """The value of the whole `text` as one LaTeX expression; units: whether to drop a unit at its end."""
    text = spelled(text)
    if text.count("{") != text.count("}"):
        return ()
    if (words := TEXT.fullmatch(text)) and any(map(str.isdigit, words[1])):
        text = words[1]
    if units:
        text = _UNIT.sub("", text)
    text = _BASE.sub("", text)
    if percent := _PERCENT.search(text):
        return tuple(search(f"${text[: percent.start()]}$ %", _LATEX))
    if number := _PLAIN.fullmatch(text):
        return _plain_number(number)
    value = tuple(search(rf"\boxed{{{text}}}", _LATEX if units else _UNITLESS))
    sides = sides_of(text)
    if not is_expression(value) and len(sides) == 2 and not any(map(str.isdigit, sides[0])):
        return read(sides[1], units)
    return value


def _plain_number(number: re.Match[str]) -> tuple[Any, ...]:
    """math-verify's value of an integer or a fraction of two integers, without its parser."""
    sign, whole, top, bottom = number.groups()
    value = Integer(whole) if whole else Rational(int(top), int(bottom))
    return -value if sign else value, number[0].replace("dfrac", "frac").replace("tfrac", "frac")


def is_expression(value: tuple[Any, ...]) -> bool:
    """Whether `value` holds a parsed expression, not only text."""
    return bool(value) and not isinstance(value[0], str)


def several(value: tuple[Any, ...]) -> bool:
    """Whether `value` has more than one value: a set, a tuple, an interval or an inequality."""
    first = value[0] if value else None
    if isinstance(first, Eq):
        first = first.rhs
    if isinstance(first, SympyFiniteSet | Tuple):
        return len(first) > 1
    if isinstance(first, And):
        return not all(isinstance(relation, Eq) for relation in first.args)
    return isinstance(first, Relational) or (isinstance(first, Set) and first is not EmptySet)


def literal(value: tuple[Any, ...]) -> bool:
    r"""Whether `value` is a written-out number or an equation with one: `42`, `\frac{84}{2}`, `x = 42`."""
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
