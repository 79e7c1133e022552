"""Which text of a response is its answer: the rules, one by one, and in linear time."""

import time

import pytest

from mcpo_cli.grading.extract import marked
from tests import hostile

ANSWERS = [
    # boxes
    (r"so \boxed{42}.", ["42"]),
    (r"\boxed{\frac{1}{2}}", [r"\frac{1}{2}"]),
    (r"\fbox{7} then \boxed{ 8 }", ["7", "8"]),
    (r"\boxed 5 apples", ["5"]),
    (r"$\boxed -3$", ["-3"]),
    (r"\boxed {x+1}", ["x+1"]),
    (r"\\boxed{3}", ["3"]),
    (r"\boxed{\{1,2\}}", [r"\{1,2\}"]),
    (r"\boxed{\left\{ x \right.}", [r"\left\{ x \right."]),
    (r"\boxed{1} \boxed{2} \boxed{1}", ["2", "1"]),
    (r"\boxed{\boxed{5}}", ["{5}"]),
    (r"\boxed{x = \boxed{5}}", ["x = {5}"]),
    (r"\boxedin{3}", None),
    # boxes without visible content
    (r"\boxed{5} and \boxed{}", ["5"]),
    (r"\boxed{5} \boxed{\phantom{7}}", ["5"]),
    (r"\boxed{5} \boxed{\quad}", ["5"]),
    (r"\boxed{5\phantom{0}}", ["5"]),
    (r"write it in \boxed{ }", None),
    # a response that was cut
    (r"so \boxed{42", None),
    (r"so \boxed{\frac{1}{2}", None),
    (r"\boxed{1} so \boxed{42", ["1"]),
    # labelled lines
    ("Answer: 42", ["42"]),
    ("blah\n**Answer:** 42.\n", ["42"]),
    ("### Final Answer: $\\frac12$", [r"\frac12"]),
    ("The final answer: \\(x+1\\)", ["x+1"]),
    ("> **Final Answer**: `42`", ["42"]),
    ("answer : 42", ["42"]),
    ("Answer:\n\n42\nbye", ["42"]),
    ("Answer:\n$$\n\\frac{1}{2}\n$$", [r"\frac{1}{2}"]),
    ("Answer: \\[ 5 \\]", ["5"]),
    ("Answer: 1\nAnswer: 2", ["1", "2"]),
    ("Answer: $42$ dollars", ["42"]),
    ("Answer: $41$ or $42$", ["$41$ or $42$"]),
    ("Answer: $41$ or 42", ["$41$ or 42"]),
    ("Final Answer: The final answer is $42$. I hope it is correct.", ["42"]),
    ("Final Answer: The answer is 12,000. I hope it is correct.", ["12,000"]),
    ("Answer: 41. Or 42.", ["41. Or 42"]),
    ("Answer: .5", [".5"]),
    ("My answer: 42", None),
    ("Answer:", None),
    (r"Answer: \boxed{42}", ["42"]),
    (r"\boxed{41} Answer: 42", ["41"]),
    # prose
    ("Hence the answer is 42.", ["42"]),
    ("The answer is 41. No, the answer is **42**.", ["42"]),
    ("The answer is: $x=2$, as required.", ["x=2"]),
    ("The answer is clear.\nAnswer: 7", ["7"]),
    # nothing is fished for
    ("We get 41 and then 42.", None),
    ("$42$", None),
    ("", None),
    # reasoning
    (r"<think>\boxed{41}</think> so \boxed{42}", ["42"]),
    (r"\boxed{41}</think>\boxed{42}", ["42"]),
    (r"<think>\boxed{41}</think> no", None),
    (r"<think> maybe \boxed{41}", None),
]


@pytest.mark.parametrize(("response", "answers"), ANSWERS)
def test_marked_answers(response: str, answers: list[str] | None) -> None:
    found = marked(response)
    assert (list(found.answers) if found else None) == answers
    if found:
        assert found.last == answers[-1]


@pytest.mark.parametrize(
    ("response", "beside"),
    [
        (r"\boxed{1} and \boxed{2}", ["1", "2"]),
        (r"$\boxed{1}$, $\boxed{2}$", ["1", "2"]),
        (r"\boxed{1} papers in the first and then also \boxed{2} bins", ["1", "2"]),
        (r"\boxed{1} no no no no no \boxed{2}", ["2"]),
        (r"first \boxed{0}" + "." * 80 + r"\boxed{1}, \boxed{2}", ["1", "2"]),
        ("Answer: 1\nAnswer: 2", ["2"]),
    ],
)
def test_boxes_side_by_side(response: str, beside: list[str]) -> None:
    found = marked(response)
    assert found is not None
    assert list(found.beside) == beside


def test_a_megabyte_is_searched_in_linear_time() -> None:
    for name, response in hostile.ANSWERS.items():
        start = time.process_time()
        marked(response)
        # A quadratic search of a megabyte takes minutes; a linear one some tenths of a second.
        assert time.process_time() - start < 5, name
