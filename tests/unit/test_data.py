"""Data sets: the problems in files of every format, and the messages for files that cannot be used."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpo_cli import data
from mcpo_cli.data import base
from mcpo_cli.data.base import Problem, integer
from tests.errors import refused

ROWS = [{"problem": "1+1?", "answer": "2"}, {"problem": "2+2?", "answer": "4"}, {"problem": "3+3?", "answer": "6"}]
TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)


def verl(row: dict[str, Any], text: str | None = None) -> dict[str, Any]:
    turn = {"role": "user", "content": base.render("dapo", row["problem"]) if text is None else text}
    return {
        "data_source": "math_dapo",
        "prompt": [turn],
        "reward_model": {"ground_truth": row["answer"], "style": "rule"},
        "extra_info": {"index": 0},
    }


def trl(row: dict[str, Any]) -> dict[str, Any]:
    turns = [{"role": "system", "content": "Think."}, {"role": "user", "content": row["problem"]}]
    return {"prompt": turns, "solution": row["answer"]}


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


WRITERS: dict[str, Callable[[Path, list[dict[str, Any]]], Any]] = {
    "x.jsonl": lambda path, rows: path.write_text(lines(rows)),
    "x.jsonl.gz": lambda path, rows: path.write_bytes(gzip.compress(lines(rows).encode())),
    "x.json": lambda path, rows: path.write_text(json.dumps(rows)),
    "lines.json": lambda path, rows: path.write_text(lines(rows)),
    "x.JSONL": lambda path, rows: path.write_text(lines(rows)),
    "x.ndjson": lambda path, rows: path.write_text(lines(rows)),
    "x.parquet": lambda path, rows: pq.write_table(pa.Table.from_pylist(rows), path),
}


def write(folder: Path, rows: list[dict[str, Any]], name: str = "x.jsonl") -> Path:
    WRITERS[name](folder / name, rows)
    return folder / name


# prompts


@given(st.sampled_from(sorted(base.WRAPPERS)), TEXTS)
def test_strip_undoes_render(template: base.Template, problem: str) -> None:
    assert base.strip(base.render(template, problem)) == problem


def test_the_dapo_wrapper_is_the_published_one() -> None:
    assert base.render("dapo", "P") == (
        "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
        "$Answer (without quotes) where $Answer is the answer to the problem.\n\nP\n\n"
        'Remember to put your answer on its own line after "Answer:".'
    )
    assert base.render("boxed", "P").endswith("put your final answer within \\boxed{}.")
    assert base.render("plain", "P") == "P"


# golds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("027", "27"),
        ("+27", "27"),
        ("-27.", "-27"),
        ("-0", "0"),
        ("000", "0"),
        ("10,27", None),
        ("27.5", None),
        ("27%", None),
        ("", None),
        ("x", None),
        ("1e3", None),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_integers(text: str, expected: str | None) -> None:
    assert integer(text) == expected


@given(st.integers(), st.sampled_from(["{}", "{}.0", "{:,}", "{:,}.00"]))
def test_integers_in_any_spelling(value: int, spelling: str) -> None:
    assert integer(spelling.format(value)) == str(value)


def test_publishers_columns(tmp_path: Path) -> None:
    amc = write(tmp_path, [{"question": "a?", "answer": 27.0}], "x.parquet")
    assert data.load("amc23", amc).problems == (Problem("a?", "27"),)
    gsm = write(tmp_path, [{"question": "b?", "answer": "1000 + 234 = <<1000+234=1234>>1,234.\n#### 1,234"}])
    assert data.load("gsm8k", gsm).problems == (Problem("b?", "1234"),)
    assert data.load("gsm8k_train", gsm).problems == (Problem("b?", "1234"),)
    # In any other set what follows the hashes is text.
    assert data.load(data.of_file(str(gsm), "train")).problems == (Problem("b?", "1,234"),)
    olympiad = write(tmp_path, [{"question": "c?", "final_answer": ["$2$, $3$"], "image_1": None}], "x.json")
    assert data.load("olympiadbench", olympiad).problems == (Problem("c?", "$2$, $3$"),)
    math = write(tmp_path, [{"problem": "d?", "answer": "\\frac{1}{2}"}])
    assert data.load("math500", math).problems == (Problem("d?", "\\frac{1}{2}"),)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        (["3", "5"], '["3", "5"]'),
        (["3", "3"], "3"),
        ([3, 2.5], '["3", "2.5"]'),
        ([["3", "5"], "8"], '["3, 5", "8"]'),
        ('["34"]', "34"),
        (["1 + 2 #### 3", "#### 3.5"], '["3", "3.5"]'),
        ("[3, 5]", "[3, 5]"),
        ("3, 5", "3, 5"),
    ],
)
@pytest.mark.parametrize("shape", [dict, verl], ids=["plain", "verl"])
def test_each_answer_of_a_list_is_correct(
    tmp_path: Path, shape: Callable[[Any], Any], answer: object, gold: str
) -> None:
    """As in lm-eval, inspect and Skywork-OR1 (its lists are texts); one without quotes is an interval or a vector."""
    loaded = data.load(data.unnamed("x"), write(tmp_path, [shape({"problem": "a?", "answer": answer})]))
    assert loaded.problems == (Problem("a?", gold),)
    assert loaded.notes == (("1 problem has a list of golds, of which each is correct",) if '", "' in gold else ())


# files


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("shape", [dict, verl, trl], ids=["plain", "verl", "trl"])
def test_every_format_says_the_same(tmp_path: Path, name: str, shape: Callable[[Any], Any]) -> None:
    loaded = data.load("aime24", write(tmp_path, [shape(row) for row in ROWS], name))
    assert {(problem.text, problem.gold) for problem in loaded.problems} == {
        ("1+1?", "2"),
        ("2+2?", "4"),
        ("3+3?", "6"),
    }
    assert loaded.digest == data.load("aime24", write(tmp_path, ROWS)).digest
    assert (loaded.name, loaded.source, loaded.rows) == ("aime24", name, 3)
    assert loaded.notes == ("3 problems instead of the published 30",)


@given(
    st.dictionaries(st.text("abc 1", min_size=1).map(str.strip).filter(bool), st.integers(), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_neither_order_nor_copies_count(
    tmp_path_factory: pytest.TempPathFactory, problems: dict[str, int], rng: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    rows = [{"problem": text, "answer": gold} for text, gold in problems.items()]
    copied = [row for row in rows for _ in range(rng.randint(1, 3))]
    rng.shuffle(copied)
    once, often = data.load("aime24", write(folder, rows)), data.load("aime24", write(folder, copied))
    assert often.problems == once.problems
    assert often.digest == once.digest
    assert len(once.problems) == len(rows)
    assert often.rows == len(copied)


def test_the_digest_sees_every_text_and_gold(tmp_path: Path) -> None:
    variants = [
        ROWS,
        ROWS[:2],
        [*ROWS[:2], {"problem": "3+3?", "answer": "7"}],
        [*ROWS[:2], {"problem": "3+3", "answer": "6"}],
        [*ROWS[:2], {"problem": "3+3?6", "answer": "6"}],
    ]
    assert len({data.load("aime24", write(tmp_path, rows)).digest for rows in variants}) == len(variants)


def test_a_folder_holds_data_sets_by_name(tmp_path: Path) -> None:
    write(tmp_path, ROWS).rename(tmp_path / "aime25.jsonl")
    assert data.load("aime25", tmp_path).source == "aime25.jsonl"
    with refused("not_found"):
        data.load("aime24", tmp_path)


def test_contradicting_golds(tmp_path: Path) -> None:
    path = write(tmp_path, [*ROWS, {"problem": "2+2?", "answer": "5"}])
    with refused("bad_data", "x.jsonl"):
        data.load("aime24", path)
    training = data.load("dapo_math_17k", path)
    assert {problem.text for problem in training.problems} == {"1+1?", "3+3?"}
    assert "1 problems have contradicting golds and are left out" in training.notes


def test_another_spelling_of_an_integer_is_no_contradiction(tmp_path: Path) -> None:
    rows = [{"problem": "1+1?", "answer": "2"}, {"problem": " 1+1? ", "answer": 2.0}]
    assert data.load("aime24", write(tmp_path, rows)).problems == (Problem("1+1?", "2"),)


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([{"problem": " ", "answer": "2"}], "row 1"),
        ([*ROWS, {"problem": "p", "answer": None}], "row 4: empty gold"),
        ([*ROWS, {"problem": "p", "answer": "1.5"}], "row 4: non-integer gold"),
        ([{"text": "p", "answer": "1"}], "'problem' or 'question' or 'prompt'"),
        ([*ROWS, {"problem": "p"}], "row 4: no column 'answer'"),
        ([{"problem": {"a": 1}, "answer": "1"}], 'row 1: {"a": 1}'),
        ([{**verl(ROWS[0]), "prompt": []}], "row 1: 'prompt'"),
        ([{**verl(ROWS[0]), "prompt": "\ud800"}], r'row 1: "\ud800"'),
        ([{**verl(ROWS[0]), "prompt": verl(ROWS[0])["prompt"] * 2}], "row 1: 'prompt'"),
        ([{**trl(ROWS[0]), "prompt": trl(ROWS[0])["prompt"] * 2}], "row 1: 'prompt' must hold one user turn"),
        ([{**verl(ROWS[0]), "reward_model": {"style": "rule"}}], "'reward_model' has no 'ground_truth'"),
        ([verl(ROWS[0], base.render("dapo", ""))], "row 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_that_cannot_be_used(tmp_path: Path, rows: list[dict[str, Any]], named: str) -> None:
    with refused("bad_data", "x.jsonl", named) as caught:
        data.load("aime24", write(tmp_path, rows))
    assert caught.value.fix


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("x.jsonl", b"\n\n", ""),
        ("x.json", b"[]", ""),
        ("x.json", b'{"problem":\n"p", "answer": "1"}', "line 1: broken JSON"),
        ("x.jsonl", b'{"problem": "p", "answer": "1"}\n{"problem": ', "line 2: broken JSON"),
        ("x.jsonl", b'{"problem": "p", "answer": "1"}\n[1]\n', "line 2: list"),
        ("x.jsonl", '{"problem": "p\u00e9", "answer": "1"}'.encode("latin-1"), "line 1: not UTF-8 (byte 14)"),
        ("x.jsonl", b'{"a":' * 100_000, "line 1: broken JSON: it is nested too deeply"),
        ("x.jsonl.gz", b"no gzip", ""),
        ("x.parquet", b"no parquet", ""),
        ("x.parquet", b"", ""),
        ("x.csv", b"problem,answer\n", "no rows"),
        ("x.csv", b"problem,answer\np,1,2\n", "Expected 2 columns, got 3"),
        ("x.csv", "problem,answer\np,\u00e9\n".encode("latin-1"), "not UTF-8"),
        ("x.xlsx", b"", "'.xlsx'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, named: str) -> None:
    (tmp_path / name).write_bytes(content)
    with refused("bad_data", name, named) as caught:
        data.load("aime24", tmp_path / name)
    assert caught.value.fix


def test_the_fix_checks_the_file(tmp_path: Path) -> None:
    """Whatever it is called: a name of no data set is no data set."""
    path = write(tmp_path, [*ROWS, {"problem": "p", "answer": None}])
    for dataset, file in ((data.of_file(str(path), "train"), None), (data.unnamed("x"), path)):
        with refused("bad_data", "row 4: empty gold") as caught:
            data.load(dataset, file)
        assert caught.value.fix == f"mcpo components check data {path}"


# declarations


def test_a_problem_is_known_by_its_text() -> None:
    # printf '1+1?' | sha256sum
    assert Problem("1+1?", "2").id == Problem("1+1?", "3").id == "cfe29f43bcc2"
    assert Problem("1+1", "2").id != Problem("1+1?", "2").id
