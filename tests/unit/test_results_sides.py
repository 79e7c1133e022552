"""Sides of a comparison from the words of a user: their names, globs, runs, and the texts of flips."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pytest

from mcpo_cli.compare import logs
from mcpo_cli.compare.log import Log, Side, checked
from mcpo_cli.compare.logs import with_texts
from mcpo_cli.compare.sides import names, sides
from mcpo_cli.config.plan import from_suite
from mcpo_cli.home import run_dir
from mcpo_cli.runs.journal import write_json
from tests.errors import refused
from tests.fakes import write_runs
from tests.sides import side


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["base.jsonl", "new.jsonl"], ["base", "new"]),
        (["base/samples.jsonl", "new/samples.jsonl"], ["base", "new"]),
        (["runs/base/m/log.csv", "runs/new/m/log.csv"], ["base", "new"]),
        (["a/x.jsonl", "a/y.jsonl", "b/x.jsonl"], ["a/x.jsonl", "a/y.jsonl", "b/x.jsonl"]),
        (["x.v1", "x.v2"], ["x.v1", "x.v2"]),
        (["only/one.parquet"], ["one"]),
    ],
)
def test_names_are_where_paths_differ(paths: list[str], expected: list[str]) -> None:
    assert names([Path(path) for path in paths]) == expected


def test_where_files_are_named_by_their_dates_sides_are_named_by_their_models(tmp_path: Path) -> None:
    for at, model in enumerate(("org/base", "org/new")):
        (tmp_path / f"2026-11-2{at}T10-00-00_sums.eval").write_text(f"0{model}")
    found = sides([str(path) for path in sorted(tmp_path.iterdir())], {}, read)
    assert [side.name for side in found] == ["base", "new"]


def read(paths: Iterable[Path]) -> dict[Path, list[Log]]:
    """One log per word of a file, by its model (its first letter is a seed); or one log if it is not a file."""
    samples = pd.DataFrame({"benchmark": ["b"], "problem": ["p"], "correct": [1]})
    words = {path: path.read_text().split() if path.is_file() else ["0"] for path in paths}
    return {path: [checked(path / word, samples, model=word[1:]) for word in words[path]] for path in words}


def shown(found: list[Side]) -> dict[str, list[str]]:
    return {side.name: [log.path.name for log in side.logs] for side in found}


def test_a_word_is_a_side_for_each_model_in_it(tmp_path: Path) -> None:
    for name, content in {"a.csv": "0 1", "b.csv": "0 1", "two.csv": "0small 0large 1large"}.items():
        (tmp_path / name).write_text(content)
    one, other, two = (str(tmp_path / name) for name in ("a.csv", "b.csv", "two.csv"))
    assert shown(sides([one, other], {}, read)) == {"a": ["0", "1"], "b": ["0", "1"]}
    assert shown(sides([two], {}, read)) == {"small": ["0small"], "large": ["0large", "1large"]}
    assert list(shown(sides([one, two], {}, read))) == ["a", "small", "large"]
    assert shown(sides([two], {"arm": str(tmp_path / "[ab].csv")}, read))["arm"] == ["0", "1"] * 2
    assert list(shown(sides([str(tmp_path / "?.csv")], {}, read))) == ["a", "b"]


def test_a_log_is_on_one_side_and_the_new_run_is_not_in_its_history(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.csv").write_text("0")
    every, new = str(tmp_path / "*.csv"), str(tmp_path / "c.csv")
    with refused("duplicate_name", "c.csv", "arm"):
        sides([new], {"arm": every}, read)
    with refused("not_found", new, "no earlier run is left"):
        sides([new], {"history": new}, read, new)
    for words, arms in (([new], {}), ([], {"new": new})):
        history, side = sorted(
            sides(words, {"history": every, **arms}, read, every), key=lambda side: side.name != "history"
        )
        assert [log.path.parent.name for log in history.logs] == ["a.csv", "b.csv"]
        assert [log.path.parent.name for log in side.logs] == ["c.csv"]
        assert [note for log in history.logs for note in log.notes if "c.csv is the new run" in note]


def test_a_run_and_an_evaluation_go_to_their_reader_by_their_ids(
    mcpo_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = from_suite("table1", ["scale=smoke", "model=toy-s", "seed=0"], "")
    write_runs(plan)
    run_id = plan.runs[0].spec.run_id
    write_json(run_dir(run_id) / "spec.json", plan.runs[0].spec.to_dict())
    (mcpo_home / "evals" / "graded").mkdir(parents=True)
    (mcpo_home / "log.csv").write_text("0")
    monkeypatch.chdir(mcpo_home)
    found = sides(["log.csv", run_id[:-3], "graded"], {}, read)
    assert [side.logs[0].path.parent for side in found] == [Path("log.csv"), Path(run_id[:-3]), Path("graded")]


def test_a_flip_has_the_best_of_one_side_and_the_worst_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LONGEST", 8)
    said = {"problem": list("pppq"), "correct": [0, 1, 1, 0], "response": ["x", "right", "again", "wrong"]}
    arm = side("arm", said)
    said = {"problem": list("ppqq"), "correct": [1, 0, 1, 1], "response": ["y", "0123456789", "good", "z"]}
    base = side("base", said)
    rows = pd.DataFrame(
        {"benchmark": "b", "arm": "arm", "problem": ["q", "p"], "score": [0, 2 / 3], "baseline_score": [1, 0.5]}
    )
    found = with_texts(rows, arm, base).set_index("problem")
    assert found["response"].to_dict() == {"q": "wrong", "p": "right"}
    assert found["baseline_response"].to_dict() == {"q": "good", "p": "01\n[... 2 characters ...]\n456789"}
