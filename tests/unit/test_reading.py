"""How answers are read: what counts as the same, what does not, what is left to do; quick ways agree with slow ones."""

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from latex2sympy2_extended.latex2sympy2 import _Latex2Sympy
from math_verify import verify
from sympy import srepr

from mcpo_cli.grading import math_verify, reading, spelling

# Judged by hand. (gold, content of the box)
RIGHT = [
    # arguments without braces
    (r"\frac{3}{4}", r"\frac 3 4"),
    ("3", r"\log_2 8"),
    (r"1+\log_2 3", r"1+\log_2 3"),
    (r"\binom{n}{2}", r"\dbinom n 2"),
    ("10", r"\binom 5 2"),
    # scientific notation
    ("42", "4.2e1"),
    ("1000", "1e3"),
    ("31000", r"3.1 \times 10^4"),
    ("31000", "3.1 x 10^4"),
    ("31000", "3.1*10^4"),
    ("31000", "3.1e+04"),
    ("0.00031", "3.1e-4"),
    ("0.00031", r"3.1 \times 10^-4"),
    ("10^{-7}", "0.0000001"),
    (r"6.62 \times 10^{-34}", "6.62e-34"),
    # mixed numbers
    (r"\frac{5}{2}", "2 1/2"),
    (r"\frac{5}{2}", "2 1/2 hours"),
    (r"-\frac{5}{2}", "-2 1/2"),
    (r"\frac{5}{2}", r"2\,\frac{1}{2}"),
    # equations
    ("42", "42=x"),
    ("42", "= 42"),
    ("0.5", "P(X=3) = 0.5"),
    ("3", r"n(A \cap B) = 3"),
    ("34", r"\text{Area} = 34 \text{ cm}^2"),
    # words and signs in front
    ("42", r"\text{Answer: }42"),
    ("34", "The largest n is 34"),
    ("34", r"\text{The answer is } 34"),
    ("12000", "The total is 12,000 dollars"),
    ("3.14", r"\approx 3.14"),
    ("42", r"\text{about } 42"),
    ("42", "€42"),
    ("42", "\u200b42"),
    ("-42", "\u221242"),
    ("42", r"\underline{42}"),
    ("42", r"\color{red}{42}"),
    # units
    ("34", "34 m/s"),
    ("34", "34 cm^2"),
    ("34", r"34~\mathrm{cm}^{2}"),
    ("34", r"34 \text{ square units}"),
    ("5'", "5"),
    ("42000000", "42 million dollars"),
    ("42000000", r"42 \text{ million}"),
    ("24", "2 dozen"),
    ("1000", "1'000"),
    ("1000.99", "1000,99"),
    ("1,22", "1.22"),
    # named parts
    ("3, 4", "(a) 3, (b) 4"),
    ("3, 4", r"\text{(a) } 3, \text{ (b) } 4"),
    ("3, 4", "a) 3; b) 4"),
    ("3, 4", "(i) 3 (ii) 4"),
    ("a. 3, b. 4", "(a) 3, (b) 4"),
    ("1,2,2", "a=1, b=2, c=2"),
    ("3, 4", "Length: 3, Width: 4"),
    ("(1,3)", "x = 1, y = 3"),
    ("3, 4", r"3 \text{ pens and } 4 \text{ books}"),
    # rounded golds
    ("0.714", r"\frac{5}{7}"),
    ("3.14", r"\pi"),
    (r"8.33\%", r"\frac{1}{12}"),
    ("-1.414", r"-\sqrt{2}"),
    # angles, ordinals, variables, domains
    (r"\frac{\pi}{6}", r"30^\circ"),
    (r"120^\circ", r"\theta = \frac{2\pi}{3}"),
    ("33", "33rd"),
    ("33", r"33^{\mathrm{rd}}"),
    ("21st row", "21"),
    ("f(n) = 2n+1", "f(m) = 2m+1"),
    ("f(x) = 3", r"f(x) = 3 \text{ for all } x \in \mathbb{Z}_{>1}"),
    (r"\frac{5}{2}k + \frac{1}{2}m", r"\frac{5k+m}{2}"),
    (r"\frac{2a-b}d", r"\frac{-b+2a}{d}"),
    ("\x0crac{1}{2}", "0.5"),
    # intervals
    (r"\{t \mid 2 < t < 9\}", "(2,9)"),
    (r"\left\{x | x < \frac{1}{2}\right\}", r"(-\infty, \frac{1}{2})"),
    ("(-\u221e, -4) \u222a (5, +\u221e)", r"(-\infty,-4) \cup (5,\infty)"),
    ("π/2 ≤ x", r"[\frac{\pi}{2}, \infty)"),
    (r"(-\infty,-5] \cup \{3\}", r"b \le -5 \text{ or } b = 3"),
    (r"2 < k \le 5 \text{ or } 7 \le k < 9", r"(2,5] \cup [7,9)"),
    (r"\infty", r"\text{infinitely many}"),
    (r"[5,\infty)", r"x \ge 5"),
    (r"x \ge 5", r"[5,\infty)"),
    (r"[5,\infty)", r"\text{at least } 5"),
    (r"(-\infty,2)", "x is less than 2"),
    ("(2,5)", "between 2 and 5"),
    ("[2,5]", "from 2 to 5, inclusive"),
    (r"\mathbb{R}", r"\text{all real numbers}"),
    (r"\emptyset", r"\text{no real solutions}"),
    # bases, primes
    ("2516_8", "2516_{8}"),
    ("2516_8", r"2516_{\text{eight}}"),
    ("2516_8", "2516"),
    ("f'(x)", r"f^{\prime}(x)"),
    ("f'(x) = 2x", "2x"),
    ("B", "Option B"),
]
WRONG = [
    ("2516_8", "2516_9"),
    ("2516_8", r"2516_{\text{nine}}"),
    ("f'(x)", "f(x)"),
    ("f(x)", "f'(x)"),
    ("f''(x)", "f'(x)"),
    ("y'", "y"),
    ("42", "4'2"),
    ("10^{-7}", "0.0000002"),
    ("0", "0.0000002"),
    (r"6.62 \times 10^{-34}", "10^{-35}"),
    (r"\frac{1}{10^{20}}", r"\frac{2}{10^{20}}"),
    ("10^{-7}x", r"2\cdot 10^{-7}x"),
    ("(0,10^{-8})", "(0,2e-8)"),
    ("2", "2 1/2"),
    ("e", "1e1"),
    ("42", "42 million"),
    ("42", r"42 \text{ squared}"),
    ("42", r"42 \text{ factorial}"),
    ("42", r"\text{at least } 42"),
    ("42", r"\text{less than } 42"),
    ("42", r"\text{The total is less than: } 42"),
    ("42", r"\text{negative } 42"),
    ("42", "half of 42"),
    ("a. 3, b. 4", "a. 4, b. 3"),
    ("3", "a. 3, b. 4"),
    ("1,2,2", "a=1, b=2, c=3"),
    ("(1,3)", "x = 3, y = 1"),
    ("x=1, y=3", "y=1, x=3"),
    ("3, 4", r"4 \text{ pens and } 3 \text{ books}"),
    ("0.5", r"\frac{6}{13}"),
    ("0.46", r"\frac{6}{13}"),
    ("0.714", "0.7143"),
    ("0.714", r"\frac{5}{7.0001}"),
    (r"\frac{5}{7}", "0.714"),
    ("3.15", r"\pi"),
    (r"8.33\%", r"\frac{1}{11}"),
    (r"\frac{\pi}{6}", r"60^\circ"),
    ("30", r"\frac{\pi}{6}"),
    ("33", "34th"),
    ("f(n) = 2n+1", "f(m) = 2n+1"),
    ("f(n) = 2n+1", "g(m) = 2m+1"),
    ("1", r"1 \text{ for all even } x \in \mathbb{Z}_{>0}"),
    (r"f(x) = 1 \text{ for all } x > 0", "f(x) = 2"),
    (r"\frac{5}{2}k + \frac{1}{2}m", r"\frac{5k+1}{2}"),
    (r"\{t \mid 2 < t < 9\}", "[2,9]"),
    (r"(-\infty,-5] \cup \{3\}", r"b \le -5"),
    (r"(-\infty,-5) \cup \{3\}", r"b \le -5 \text{ or } b = 3"),
    (r"(2,5] \cup [7,9)", r"2 < k \le 5 \text{ and } 7 \le k < 9"),
    ("(2,5)", "[2,5]"),
    ("[2,5]", "between 2 and 5"),
    ("4", "2 = 4"),
    ("42", "41? = 42"),
    ("1", "1'000"),
    ("3x^2", "3 m^2"),
]


def status(gold: str, answer: str) -> str:
    return math_verify.grade(gold, rf"Hence \boxed{{{answer}}}.", False).status


@pytest.mark.parametrize(("gold", "answer"), RIGHT)
def test_right_answers(gold: str, answer: str) -> None:
    assert status(gold, answer) in ("correct", "unevaluated")


@pytest.mark.parametrize(("gold", "answer"), WRONG)
def test_wrong_answers(gold: str, answer: str) -> None:
    assert status(gold, answer) in ("wrong", "unparsable")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("91", r"\sum_{k=1}^{6} k^2"),
        ("91", r"x = \sum_{k=1}^{6} k^2"),
        ("91", r"\sum_{k=1}^{6} k^2 = \sum_{k=1}^{6} k^2"),
        ("24", r"\prod_{k=1}^{4} k"),
        (r"\frac{1}{3}", r"\int_0^1 x^2 dx"),
        ("1", r"\lim_{x \to 0} \frac{\sin x}{x}"),
        ("42", r"\gcd(84,126)"),
        ("42", r"\operatorname{gcd}(84,126)"),
        ("10", r"\binom 5 2"),
        ("10", r"\binom{5}{2}"),
        (r"2\pi", r"\int_0^{2\pi} 1 dx"),
        ("391", r"17 \cdot 23"),
        ("1024", "2^{10}"),
        ("4", r"\sqrt{16}"),
        ("5040", "7!"),
        ("3", r"\log_2 8"),
    ],
)
def test_restating_the_problem_is_unevaluated(gold: str, answer: str) -> None:
    assert status(gold, answer) == "unevaluated"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("91", r"\sum_{k=1}^{6} k^2 = 91"),
        ("91", r"91 = \sum_{k=1}^{6} k^2"),
        ("391", r"17 \cdot 23 = 391"),
        ("42", r"\frac{84}{2}"),
        ("42", "84/2"),
        ("42", r"x = 42 \text{ cm}"),
        ("42", r"42\%"),
        ("42", r"4.2 \times 10^1"),
        (r"\frac{5}{2}", r"2\frac{1}{2}"),
        (r"2\sqrt{3}", r"\sqrt{12}"),
        (r"7\pi", r"7 \cdot \pi"),
        ("2^{100}", r"2^{50} \cdot 2^{50}"),
        (r"\binom{2n}{n}", r"\binom{2n}{n}"),
        (r"\binom{10}{3}", r"\binom{10}{7}"),
        ("2x+4y=3", "4x+8y=6"),
        ("p = -1, q = 2", "p=-1,q=2"),
    ],
)
def test_what_is_evaluated_is_correct(gold: str, answer: str) -> None:
    assert status(gold, answer) == "correct"


def plain_math_verify(gold: str, answer: str) -> bool:
    found = [reading.search(rf"\boxed{{{text}}}") for text in (gold, answer)]
    return bool(verify(*found, timeout_seconds=None))


small = st.integers(2, 9)


@st.composite
def right_answers(draw: st.DrawFn) -> tuple[str, str]:
    """A gold with one value and another spelling of it, as plain math-verify sees it as well."""
    a, b, n = draw(small), draw(small), draw(st.integers(10, 99_999))
    value = Fraction(a, b)
    gold = str(value.numerator) if value.denominator == 1 else rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
    pairs = [
        (gold, rf"\frac {a} {b}"),
        (gold, rf"\dfrac{{{a}}}{{{b}}}"),
        (gold, rf"{a} / {b}"),
        (gold, rf"x = \frac{a}{b}"),
        (rf"\log_{{{a}}} {b}", rf"\log_{a} {b}"),
        (rf"{n} + \log_{{{a}}} {b}", rf"{n} + \log_{a} {b}"),
        (rf"\sqrt{{{a}}} + {n}", rf"{n} + \sqrt {a}"),
        (str(n), rf"{n} \text{{ cm}}^{a}"),
        (str(n), rf"\text{{{n}}}"),
        (str(n), rf"{n} \; "),
        (str(n), f"{n:,}".replace(",", r"\,")),
        (str(n), rf"f({a}) = {n}"),
        (str(a + b), rf"{a} + {b} = {a + b}"),
        (rf"{n}^{{{a}}}", rf"{n}^{a}"),
        (rf"{a}x^{{{b}}} + {n}", rf"{n} + {a} x^{b}"),
    ]
    return draw(st.sampled_from(pairs))


@settings(max_examples=60)
@given(right_answers())
def test_no_rule_takes_a_right_answer_for_a_hedge(pair: tuple[str, str]) -> None:
    """Right by construction."""
    gold, answer = pair
    assert [rule for rule, breaks in math_verify.HEDGES.items() if breaks(spelling.spelled(answer))] == []
    assert status(gold, answer) in ("correct", "unevaluated")


def test_what_plain_math_verify_calls_right_is_no_hedge() -> None:
    """Of the answers judged by hand, those that need none of our readings: each rule is held against each of them."""
    right = [pair for pair in RIGHT if plain_math_verify(*pair)]
    assert len(right) > 15
    assert [pair for pair in right if math_verify.hedge(*map(spelling.spelled, pair))] == []


atom = st.sampled_from(
    ["x", "y", "2", "3", "7", "12", r"\pi", r"\sqrt{2}", r"\frac{1}{2}", "0.5", "x^2", "y^{3}", "x_1"]
)


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(inner, inner)
    return st.one_of(
        two.map("{0[0]} + {0[1]}".format),
        two.map("{0[0]} - ({0[1]})".format),
        two.map(r"({0[0]}) \cdot ({0[1]})".format),
        two.map(r"\frac{{{0[0]}}}{{{0[1]}}}".format),
        inner.map("({})^2".format),
        inner.map(r"\sin({})".format),
    )


expression = st.recursive(atom, combined, max_leaves=4)
whole = st.one_of(
    expression,
    st.tuples(expression, expression).map("({0[0]}, {0[1]})".format),
    st.tuples(expression, expression).map("[{0[0]}, {0[1]})".format),
    st.tuples(expression, expression).map("{0[0]}, {0[1]}".format),
    expression.map("z = {}".format),
    expression.map("f(x) = {}".format),
    expression.map(r"z \le {}".format),
    expression.map(r"{} \pm 1".format),
)


@pytest.mark.slow
@settings(max_examples=100)
@given(whole)
def test_two_stages_parse_what_one_does(text: str) -> None:
    """ANTLR's quick prediction against the full one, on what the parser sees."""

    def tree(make: type[_Latex2Sympy]) -> str:
        with contextlib.suppress(Exception):
            return srepr(make(None, True).parse(text))
        return "nothing"

    assert tree(reading._TwoStages) == tree(_Latex2Sympy)


@pytest.mark.slow
@settings(max_examples=100)
@given(expression, expression, st.booleans())
def test_quick_comparisons_say_what_math_verify_says(first: str, second: str, alike: bool) -> None:
    second = f"({first}) + ({second}) - ({second})" if alike else second
    gold, answer = list(reading.read(first)), list(reading.read(second))
    quick = reading._quick(gold, answer)
    if quick is not None:
        assert quick == bool(verify(gold, answer, timeout_seconds=None))


@pytest.mark.parametrize(
    ("first", "second", "quick"),
    [("x(x+1)", "x^2+x", True), ("x(x+1)", "x^2-x", False), (r"\sqrt{12}", "4", False), (r"42\%", "42", None)],
)
def test_the_quick_comparison_decides(first: str, second: str, quick: bool | None) -> None:
    assert reading._quick(list(reading.read(first)), list(reading.read(second))) is quick


@given(st.from_regex(r"-?([0-9]{1,5}|\\[dt]?frac\{[0-9]{1,4}\}\{[1-9][0-9]{0,3}\})", fullmatch=True))
@settings(max_examples=80)
def test_plain_numbers_are_read_as_math_verify_reads_them(text: str) -> None:
    (value, said), slow = reading.read(text), reading.search(rf"\boxed{{{text}}}")
    assert srepr(value) == srepr(slow[0])
    assert said == slow[1]
