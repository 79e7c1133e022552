"""Sides of a comparison from the words of a user: their names, globs, runs, and what a text of a flip is."""

from pathlib import Path

import pandas as pd
import pytest

from mcpo_cli.config.plan import from_suite
from mcpo_cli.home import run_dir
from mcpo_cli.results import flips
from mcpo_cli.results.flips import with_texts
from mcpo_cli.results.log import Log, Side, checked
from mcpo_cli.results.sides import names, sides
from mcpo_cli.runs.journal import write_json
from tests.errors import refused
from tests.fakes import write_runs


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["base.jsonl", "new.jsonl"], ["base", "new"]),
        (["out_base/", "out_new/"], ["out_base", "out_new"]),
        (["base/samples.jsonl", "new/samples.jsonl"], ["base", "new"]),
        (["runs/base/m/log.csv", "runs/new/m/log.csv"], ["base", "new"]),
        (["a/x.jsonl", "a/y.jsonl", "b/x.jsonl"], ["a/x.jsonl", "a/y.jsonl", "b/x.jsonl"]),
        (["x.v1", "x.v2"], ["x.v1", "x.v2"]),
        (["only/one.parquet"], ["one"]),
    ],
)
def test_names_are_where_paths_differ(paths: list[str], expected: list[str]) -> None:
    assert names([Path(path) for path in paths]) == expected


def read(path: Path) -> list[Log]:
    """One log per line of a file, or one for a folder."""
    found = path.read_text().split() if path.is_file() else ["one"]
    samples = pd.DataFrame({"benchmark": ["b"], "problem": ["p"], "correct": [1]})
    return [checked(path / name, samples) for name in found]


def shown(found: list[Side]) -> dict[str, list[str]]:
    return {side.name: [log.path.name for log in side.logs] for side in found}


def test_a_word_is_a_side_and_a_single_word_a_side_for_each_log(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("s0 s1")
    words = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    assert shown(sides(words, {}, read)) == {"a": ["s0", "s1"], "b": ["s0", "s1"]}
    assert shown(sides(words[:1], {}, read)) == {"s0": ["s0"], "s1": ["s1"]}
    assert shown(sides(words[:1], {"other": str(tmp_path / "?.csv")}, read)) == {
        "a": ["s0", "s1"],
        "other": ["s0", "s1", "s0", "s1"],
    }
    assert list(shown(sides([str(tmp_path / "*.csv")], {}, read))) == ["a", "b"]


def test_a_run_and_an_evaluation_are_found_by_their_ids(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = from_suite("table1", ["scale=smoke", "model=toy-s", "seed=0"], "")
    write_runs(plan)
    run_id = plan.cells[0].spec.run_id
    write_json(run_dir(run_id) / "spec.json", plan.cells[0].spec.to_dict())
    (mcpo_home / "evals" / "graded").mkdir(parents=True)
    (mcpo_home / "log.csv").write_text("x")
    monkeypatch.chdir(mcpo_home)
    found = sides(["log.csv", run_id[:-3], "graded"], {}, read)
    assert [side.logs[0].path.parent for side in found] == [
        Path("log.csv"),
        mcpo_home / "runs" / run_id,
        mcpo_home / "evals" / "graded",
    ]
    with refused("not_found", "lgo.csv", "log.csv"):
        sides(["log.csv", "lgo.csv"], {}, read)


def side(name: str, rows: list[tuple[str, int, str]]) -> Side:
    samples = pd.DataFrame(rows, columns=["problem", "correct", "response"]).assign(benchmark="b")
    return Side(name, (checked(Path(name), samples),))


def test_a_flip_has_the_best_of_one_side_and_the_worst_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flips, "LONGEST", 8)
    arm = side("arm", [("p", 0, "x"), ("p", 1, "right"), ("p", 1, "again"), ("q", 0, "wrong")])
    base = side("base", [("p", 1, "y"), ("p", 0, "0123456789"), ("q", 1, "good"), ("q", 1, "z")])
    rows = pd.DataFrame(
        {"benchmark": "b", "arm": "arm", "problem": ["q", "p"], "score": [0, 2 / 3], "baseline_score": [1, 0.5]}
    )
    found = with_texts(rows, arm, base).set_index("problem")
    assert found["response"].to_dict() == {"q": "wrong", "p": "right"}
    assert found["baseline_response"].to_dict() == {"q": "good", "p": "01\n[... 2 characters ...]\n456789"}


def test_logs_without_texts_give_scores_alone() -> None:
    samples = pd.DataFrame({"benchmark": ["b"], "problem": ["p"], "correct": [1]})
    bare = Side("bare", (checked(Path("x"), samples),))
    rows = pd.DataFrame({"benchmark": "b", "arm": "a", "problem": ["p"], "score": [1.0], "baseline_score": [0.0]})
    assert list(with_texts(rows, bare, bare)) == list(rows)
