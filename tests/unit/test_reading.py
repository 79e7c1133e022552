"""Reading of answers: equal answers, different answers, and known gaps."""

from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from math_verify import verify

from mcpo_cli.grading import equality, math_verify, reading, spelling


def status(gold: str, answer: str) -> str:
    return math_verify.grade(gold, rf"Hence \boxed{{{answer}}}.", False).status


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
    """These answers are correct by construction."""
    gold, answer = pair
    assert [rule for rule, breaks in math_verify.HEDGES.items() if breaks(spelling.spelled(answer))] == []
    assert status(gold, answer) in ("correct", "unevaluated")


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


@pytest.mark.slow
@settings(max_examples=40)
@given(expression, expression, st.booleans())
@example(r"(\sin(\pi))^2", r"(\sin(\pi))^2", False)
@example(r"\sin(\pi)", "2 - (2)", False)
def test_quick_comparisons_say_what_math_verify_says(first: str, second: str, alike: bool) -> None:
    second = f"({first}) + ({second}) - ({second})" if alike else second
    gold, answer = list(reading.read(first)), list(reading.read(second))
    quick = equality._quick(gold, answer)
    if quick is not None:
        assert quick == bool(verify(gold, answer, timeout_seconds=None))


@pytest.mark.parametrize(
    ("first", "second", "quick"),
    [
        ("x(x+1)", "x^2+x", True),
        ("x(x+1)", "x^2-x", False),
        (r"\sqrt{12}", "4", False),
        (r"\sin(x - (x))^2", r"\sin(y - (y))^2", None),
        (r"42\%", "42", None),
        (r"\frac{3}{7}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^{10}", None),
    ],
)
def test_the_quick_comparison_decides(first: str, second: str, quick: bool | None) -> None:
    assert equality._quick(list(reading.read(first)), list(reading.read(second))) is quick
