"""The findings of an audit, and those that it calls serious."""

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpo_cli import data
from mcpo_cli.data import audit as audits
from mcpo_cli.data.audit import audit, kind

SENTENCES = st.lists(st.sampled_from(["find", "the", "sum", "of", "all", "prime", "n"]), min_size=1, max_size=8).map(
    " ".join
)
TWO_WORDINGS = (
    "Let $S$ be the set of triples $(a,b,c)$ of integers such that $a+b+c$ is even. The value of the sum can be "
    "expressed as $m/n$, where $m$ and $n$ are relatively prime positive integers. Compute $m+n$.",
    "Let $S$ be the set of triples $(a, b, c)$ of integers such that $a + b + c$ is even. Determine the value of the "
    "sum: it can be expressed as $m / n$, where $m$ and $n$ are relatively prime positive integers. Compute $m+n$.",
)
OTHER_PROBLEM = (
    "A fair die is thrown until a six appears. The expected number of throws can be expressed as $m/n$, where $m$ and "
    "$n$ are relatively prime positive integers. Compute $m+n$."
)


def audited(name: str, rows: Sequence[dict[str, Any]], folder: Path, **against: Sequence[dict[str, Any]]) -> Any:
    """The audit of `rows`; every gold grades as correct unless it says `broken`."""

    def reading(name: str, rows: Sequence[dict[str, Any]]) -> Any:
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return data.get(name), data.read(data.get(name), path)

    def graded(golds: Sequence[str]) -> list[str]:
        return ["unparsable" if gold == "broken" else "correct" for gold in golds]

    others = [reading(other, its) for other, its in against.items()]
    return audit(*reading(name, rows), others, graded, lambda line: None)


def problems(count: int, text: str = "What is the {}th prime?") -> list[dict[str, Any]]:
    return [{"problem": text.format(number), "answer": number} for number in range(count)]


def found(document: Any) -> dict[str, bool]:
    """Kind of finding -> whether it is serious."""
    return {finding["kind"]: finding["serious"] for finding in document["findings"]}


# n-grams


def test_words_know_neither_case_nor_punctuation() -> None:
    assert audits.words("Find $x_1, Y_{2}$, né 求和!") == ["find", "x", "1", "y", "2", "n", "é", "求", "和"]


def test_operators_tell_problems_apart() -> None:
    assert audits.words("two-digit x-1+y^{2}") == ["two", "digit", "x", "-", "1", "+", "y", "^", "2"]
    texts = [f"What is 3 {sign} 4?" for sign in "+-*/"]
    assert audits.near_duplicates(texts) == audits.overlap(texts[:2], texts[2:]) == []


def test_brackets_tell_problems_apart() -> None:
    texts = ["What is 2 * (3 + 4)?", "What is 2 * 3 + 4?", "What is [2 * 3] + 4?"]
    assert len(set(map(tuple, map(audits.words, texts)))) == 3
    assert audits.overlap(texts[:1], texts[1:]) == audits.overlap(texts[1:2], texts[2:]) == []
    assert audits.words(r"\(x\) (A) 1") == ["x", "a", "1"]


@given(st.lists(SENTENCES, max_size=12), st.sampled_from([0.3, 0.6, 0.9, 1.0]))
def test_near_duplicates_are_those_of_brute_force(texts: list[str], threshold: float) -> None:
    sets = [audits.grams(text, audits.SHINGLE) for text in texts]
    expected = {
        (one, two): len(sets[one] & sets[two]) / len(sets[one] | sets[two])
        for one, two in combinations(range(len(texts)), 2)
    }
    pairs = audits.near_duplicates(texts, threshold)
    assert {(pair.first, pair.second): pair.similarity for pair in pairs} == {
        pair: similarity for pair, similarity in expected.items() if similarity >= threshold
    }


def test_overlap_tells_a_shared_problem_from_a_shared_phrase() -> None:
    same, phrase = audits.overlap([TWO_WORDINGS[0], OTHER_PROBLEM, "What is 1+1?"], [TWO_WORDINGS[1]])
    assert (same.first, phrase.first) == (0, 1)
    assert same.similarity >= audits.SIMILAR > phrase.similarity > 0


def test_short_texts_overlap_as_a_whole_only() -> None:
    others = ["What is 1+1?", "What is 1+1 and 2+2?"]
    assert audits.overlap(["what is 1 + 1", "What is 2+2?"], others) == [audits.SimilarPair(0, 0, 1.0)]
    assert audits.grams("a b c", 3) == audits.grams("A, b; c", 3) == {"a b c"}
    assert audits.grams("a b", 3) == {"^ a b $"}


def test_a_passage_of_many_texts_is_a_phrase() -> None:
    passage = "where m and n are relatively prime positive integers find the sum m n"
    rare = [f"{passage} {number}" for number in range(audits.COMMON)]
    assert len(audits.overlap([passage + " x"], rare)) == 1
    assert audits.overlap([passage + " x"], [*rare, passage]) == []


# findings


def test_a_clean_benchmark(tmp_path: Path) -> None:
    document = audited("aime24", problems(30), tmp_path)
    assert found(document) == {}
    assert (document["rows"], document["problems"], document["copies"]) == (30, 30, {"1": 30})
    assert document["golds"] == {"integer": 30}
    assert document["words"] == {"min": 5, "median": 5, "p95": 5, "max": 5}
    assert document["characters"] == {"min": 22, "median": 23, "p95": 23, "max": 23}
    assert document["digest"] == data.load("aime24", tmp_path).digest


def test_copies(tmp_path: Path) -> None:
    document = audited("aime24", problems(30) * 32, tmp_path)
    assert found(document) == {"copies": True}
    assert document["findings"][0]["text"] == "960 rows hold 30 problems x 32 copies; each is used once"
    uneven = audited("aime24", [*problems(30), *problems(10)], tmp_path)
    assert uneven["copies"] == {"1": 20, "2": 10}
    assert uneven["findings"][0]["text"] == "40 rows hold 30 problems x 1 to 2 copies; each is used once"
    assert found(audited("dapo_math_17k", problems(30) * 100, tmp_path)) == {"copies": False}


def test_contradicting_golds(tmp_path: Path) -> None:
    rows = [*problems(30), {"problem": "What is the 7th prime?", "answer": 17}]
    document = audited("aime24", rows, tmp_path)
    assert found(document) == {"copies": True, "conflicts": True}
    assert document["conflicts"] == [{"row": 8, "golds": {"7": 1, "17": 1}, "problem": "What is the 7th prime?"}]
    assert found(audited("dapo_math_17k", rows, tmp_path)) == {"copies": False, "conflicts": False}
    (conflicts,) = [finding["text"] for finding in document["findings"] if finding["kind"] == "conflicts"]
    assert conflicts.endswith("training leaves them out and has 29 problems")


def test_rows_that_cannot_be_used(tmp_path: Path) -> None:
    rows = [*problems(30), {"problem": "", "answer": 1}, *[{"problem": "p", "answer": "x"}] * 2]
    document = audited("aime24", rows, tmp_path)
    assert found(document) == {"empty problem": True, "non-integer gold": True}
    assert document["findings"][1]["text"] == "row 32 and 1 rows like it: non-integer gold: 'x'"


def test_golds_that_the_grader_cannot_judge_also_in_lists(tmp_path: Path) -> None:
    rows = [*problems(498), {"problem": "p", "answer": "broken"}, {"problem": "q", "answer": ["1/2", "broken"]}]
    document = audited("math500", rows, tmp_path)
    assert found(document) == {"not parsable": True, "several golds": False}
    assert document["not_parsable"] == [{"row": row, "gold": "broken", "status": "unparsable"} for row in (499, 500)]
    assert document["golds"] == {"integer": 498, "text": 1, "any of several": 1}


@pytest.mark.parametrize(
    ("audited_as", "other", "serious"),
    [("aime24", "dapo_math_17k", True), ("dapo_math_17k", "aime24", True), ("aime24", "aime25", False)],
)
def test_overlap(tmp_path: Path, audited_as: str, other: str, serious: bool) -> None:
    mine = [*problems(29), {"problem": TWO_WORDINGS[0], "answer": 1}]
    theirs = [*problems(29, "How many edges has the {}th graph?"), {"problem": TWO_WORDINGS[1], "answer": 1}]
    document = audited(audited_as, mine, tmp_path, **{other: theirs})
    assert found(document) == {"overlap": serious}
    (overlap,) = document["overlaps"]
    assert (overlap["name"], overlap["same"], overlap["passages"], overlap["of"]) == (other, 1, 0, 30)
    assert overlap["pairs"][0]["rows"] == [30, 30]
    assert overlap["pairs"][0]["same_gold"]


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        ("-12", "integer"),
        ("27.0", "integer"),
        ("2.75", "decimal"),
        ("3/4", "fraction"),
        ("$\\frac{3}{4}$", "fraction"),
        ("-\\frac34", "fraction"),
        ("2, 3", "list or interval"),
        ("(0, 1]", "list or interval"),
        ("\\text{Evelyn}", "text"),
        ("odd", "text"),
        ("2\\sqrt{3}", "expression"),
        ("x^2+1", "expression"),
        ("\\frac{\\sqrt{3}}{2}", "expression"),
    ],
)
def test_kinds_of_golds(gold: str, expected: str) -> None:
    assert kind(gold) == expected


def test_golds_that_are_whole_solutions(tmp_path: Path) -> None:
    """They are equal to themselves, and to no answer: serious where they mark no answer."""
    worked = "First we add three and four, which gives seven, so seven it is."
    rows = [*problems(5), {"problem": "3+4?", "answer": worked}]
    assert found(audited("math500", rows, tmp_path))["solutions"] is True
    rows[-1]["answer"] = f"{worked}\nHence \\boxed{{7}}."
    assert found(audited("math500", rows, tmp_path))["solutions"] is False
    rows[-1]["answer"] = f"{worked}\n#### 7"
    assert "solutions" not in found(audited("math500", rows, tmp_path))
