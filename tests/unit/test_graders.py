"""The graders' decisions and the answers that responses mark, one by one, and agreement with published labels."""

import csv
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from math_verify import ExprExtractionConfig, LatexExtractionConfig

from mcpo_cli import golds, grading
from mcpo_cli.grading import equality, math_verify, reading
from mcpo_cli.grading.base import STATUSES, Grade
from mcpo_cli.grading.extract import marked
from mcpo_cli.grading.simple import TRACE
from tests import hostile

with Path(__file__).with_name("marked.csv").open(encoding="utf-8", newline="") as table:
    _, *MARKED = csv.reader(table)
"""A response and the answers that it marks, in order; possibly none."""
with Path(__file__).with_name("answers.csv").open(encoding="utf-8", newline="") as table:
    ANSWERS = list(csv.DictReader(table))
"""Decisions of the graders, checked by hand. form: `box` (content of a box), `response` (in full) or `prediction` (an
answer that was extracted). The status `hedged` is a `wrong` whose detail says why."""
SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@pytest.mark.parametrize("name", sorted({row["grader"] for row in ANSWERS}))
def test_decisions(name: str) -> None:
    grader, told = grading.loaded(name), []
    for row in ANSWERS:
        if row["grader"] == name:
            response = rf"Hence \boxed{{{row['answer']}}}." if row["form"] == "box" else row["answer"]
            verdict = grader.grade(row["gold"], response, row["form"] == "prediction")
            hedged = verdict.detail.startswith("hedged: ") and verdict.status == "wrong"
            status = "hedged" if hedged else verdict.status
            told += [(row, status)] * (status != row["status"])
    assert told == []


@given(st.text("0123456789= _", max_size=20), st.text("0123456789= _", max_size=20))
def test_a_trace_is_right_where_the_words_are_those_of_the_gold(response: str, gold: str) -> None:
    verdict = TRACE.grade(gold, response, False)
    assert (verdict.status == "correct") == (response.split() == gold.split())
    assert TRACE.grade(gold, f" {gold}\n", False).status == "correct"
    assert TRACE.grade(gold, f"{gold} x", False) == Grade("wrong", "x")


@pytest.mark.parametrize("name", sorted(set(grading.registry()) - {"math_verify", "reasoning_gym"}))
def test_string_graders_never_fail_or_hang(name: str) -> None:
    """Graders of lists of numbers get lists as golds. A quadratic search in these takes minutes of CPU time."""
    grader, gold = grading.loaded(name), {"countdown": "3 5 8 : 24"}.get(name)
    longest = ["=" * 10**6 + "7", "(" * 10**5 + "3 * 8" + ")" * 10**5, "answer is " * 10**5 + "7", "#" * 10**6]
    for of, response in [*hostile.items(len(hostile.ANSWERS), seed=0), *(("7", text) for text in longest)]:
        begun = time.process_time()
        assert grader.grade(gold or of, response, False).status in STATUSES
        assert time.process_time() - begun < 5, response[:50]


def rows(name: str) -> Iterator[dict]:
    path = SHARED / name
    if path.exists():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def test_published_labels_of_model_answers() -> None:
    told = [
        row["id"]
        for row in rows("grading/qwen25_math_cot100x8.jsonl")
        if (math_verify.grade(row["gold"], row["response"], False).status == "correct") != row["correct"]
    ]
    assert told in ([], ["qwenmath/72/7"])  # 10000 for a gold of 10{,}000 is labelled as wrong


def test_answers_of_practice() -> None:
    """Answers that people reported as graded wrongly, and their neighbours; two boxes that differ stay a hedge."""
    told = [
        row["response"]
        for row in rows("practice/graded.jsonl")
        if (math_verify.grade(row["gold"], row["response"], False).status in ("correct", "unevaluated"))
        != row["correct"]
    ]
    assert told in ([], [r"First I thought \boxed{12}. That counts one case twice, so the answer is \boxed{15}."])


@pytest.mark.slow
def test_cases_of_math_verify() -> None:
    kinds = {"latex": LatexExtractionConfig(), "expr": ExprExtractionConfig()}
    told = []
    for row in rows("grading/math_verify_tests.jsonl"):
        options = dict(row["params"])
        targets = tuple(kinds[kind] for kind in options.pop("match_types", kinds))
        if "precision" in options:
            options["float_rounding"] = options.pop("precision")
        gold, answer = (reading.search(row[side], targets) for side in ("gold", "pred"))
        if equality.equal(gold, answer, **{"allow_set_relation_comp": False, **options}) != row["expected"]:
            told.append(row["id"])
    assert told in ([], ["mv/test_all/test_latex_notation_math/60"])


@pytest.mark.slow
def test_answers_that_verifiers_refuse() -> None:
    """HardVerify-Math of TinyV (arXiv 2505.14625): per problem, an answer that rules refuse and an incorrect one."""
    verdicts = {
        row["id"]: (row["right"], math_verify.grade(row["gold"], rf"\boxed{{{row['answer']}}}", False).status)
        for row in rows("grading/hardverify_math.jsonl")
    }
    told = {name for name, (right, status) in verdicts.items() if not right and status in ("correct", "unevaluated")}
    refused = [name for name, (right, status) in verdicts.items() if right and status not in ("correct", "unevaluated")]
    assert told <= {"hardverify/52/wrong"}  # the gold's values, in braces
    assert len(refused) <= 64


@pytest.mark.parametrize(
    ("cell", "gold", "answers"),
    [
        (["1/2", "0.5"], '["1/2", "0.5"]', ["1/2", "0.5"]),
        (["1/2"], "1/2", ["1/2"]),
        ("[1, 2]", "[1, 2]", ["[1, 2]"]),
        (7, "7", ["7"]),
        ("['1', 2]", "['1', 2]", ["['1', 2]"]),
        ('["1"' + "[" * 10**5, '["1"' + "[" * 10**5, ['["1"' + "[" * 10**5]),
        (None, None, []),
    ],
    ids=range(7),
)
def test_golds_in_cells(cell: object, gold: str | None, answers: list[str]) -> None:
    assert golds.of_cell(cell, str) == gold
    assert gold is None or golds.alternatives(gold) == answers


# the text of a response that is its answer


def test_marked_answers() -> None:
    found = {response: marked(response) for response, *_ in MARKED}
    assert [[response, *(one.answers if one else ())] for response, one in found.items()] == MARKED
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
