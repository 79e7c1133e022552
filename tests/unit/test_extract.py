"""The text of a response that is its answer: the rules, one by one, and in linear time."""

import csv
import time
from pathlib import Path

import pytest

from mcpo_cli.grading.extract import marked
from tests import hostile

with Path(__file__).with_name("marked.csv").open(encoding="utf-8", newline="") as file:
    _, *ANSWERS = csv.reader(file)
"""A response and the answers that it marks, in order; possibly none."""


def test_marked_answers() -> None:
    found = {response: marked(response) for response, *_ in ANSWERS}
    assert [[response, *(one.answers if one else ())] for response, one in found.items()] == ANSWERS
    assert all(one.last == one.answers[-1] for one in found.values() if one)


@pytest.mark.parametrize(
    ("response", "adjacent"),
    [
        (r"\boxed{1} and \boxed{2}", ["1", "2"]),
        (r"$\boxed{1}$, $\boxed{2}$", ["1", "2"]),
        (r"\boxed{1} papers in the first and then also \boxed{2} bins", ["1", "2"]),
        (r"\boxed{1} no no no no no \boxed{2}", ["2"]),
        (r"first \boxed{0}" + "." * 80 + r"\boxed{1}, \boxed{2}", ["1", "2"]),
        ("Answer: 1\nAnswer: 2", ["2"]),
    ],
)
def test_boxes_side_by_side(response: str, adjacent: list[str]) -> None:
    found = marked(response)
    assert found is not None
    assert list(found.adjacent) == adjacent


def test_a_megabyte_is_searched_in_linear_time() -> None:
    for name, response in hostile.ANSWERS.items():
        start = time.process_time()
        marked(response)
        # A quadratic search of a megabyte takes minutes; a linear one some tenths of a second.
        assert time.process_time() - start < 5, name
