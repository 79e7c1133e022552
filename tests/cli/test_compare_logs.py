"""`mcpo compare` of logs with a known truth: files that are written, the store, histories, and layout."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mcpo_cli.commands import console
from tests.cli.conftest import InProcess

SCRIPT = "<script>alert('x')</script> ![x](https://example.com/x.png)"


def table(path: Path, right: Any, **columns: Any) -> None:
    """A JSONL of problems, of which those are solved that are `right`."""
    rows = [{"problem": f"p{problem}", "correct": int(solved), **columns} for problem, solved in enumerate(right)]
    pd.DataFrame(rows).to_json(path, orient="records", lines=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with logs of known truth: of 100 problems, `new` gains 30 over `base` and loses 5."""
    monkeypatch.chdir(tmp_path)
    base = np.arange(100) < 50
    table(tmp_path / "base.jsonl", base, gold="7", response=SCRIPT, answer="<b>6</b>", prompt="=1+1")
    table(tmp_path / "new.jsonl", (np.arange(100) < 80) & (np.arange(100) >= 5), response="fine", answer="7")
    table(tmp_path / "copy.jsonl", np.roll(base, 1))
    return tmp_path


def compared(here: InProcess, *words: str) -> Any:
    """The one comparison of `mcpo compare --json`."""
    (document,) = here.json("compare", *words)["comparisons"]
    return document


def test_what_is_written_parses_and_escapes_what_models_wrote(here: InProcess, folder: Path) -> None:
    document = compared(here, "base.jsonl", "new.jsonl", "--out", "out")
    out = {path.name: path for path in (folder / "out").iterdir()}
    assert set(out) == {Path(name).name for name in document["files"]}

    with out["differences.csv"].open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["difference"]) == pytest.approx(0.25)
    flips = pd.read_csv(out["flips.csv"])
    assert len(flips) == 35
    assert list(flips) == ["model", "benchmark", "arm", "problem", "score", "baseline_score"]
    assert json.loads(out["comparison.json"].read_text())["differences"] == document["differences"]

    page = out["comparison.html"].read_text()
    assert page.count("<script") == 1
    links = re.findall(r"""\s(?:src|href|srcset|data|action)\s*=\s*["']?([^"'>\s]*)""", page)
    assert [link for link in links if not link.startswith(("#", "data:image/png;base64,"))] == []
    assert "url(" not in page
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in page

    tex = out["comparison.tex"].read_text()
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == tex.count(r"\bottomrule") > 0
    assert re.search(r"results & \.500 & \.750 & \+\.250 ", tex)
    assert "| results | .500 | .750 | +.250 |" in out["comparison.md"].read_text()
    assert {name.rpartition(".")[2] for name in out} == {"csv", "md", "tex", "json", "svg", "html"}


@pytest.mark.slow
@pytest.mark.usefixtures("folder", "stored")
def test_a_comparison_is_logged_to_mlflow_once_and_another_question_beside_it(here: InProcess) -> None:
    from mlflow import MlflowClient

    for baseline in ("base.jsonl", "base.jsonl", "copy.jsonl"):
        assert here("compare", baseline, "new.jsonl", "--mlflow").returncode == 0
    client = MlflowClient(f"sqlite:///{here.home / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("compare")
    assert experiment
    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time"])
    assert [run.data.metrics["difference/pass_at_1/results/new"] for run in runs] == pytest.approx([0.25, 0.25])
    for run in runs:
        assert "reports/comparison.html" in {one.path for one in client.list_artifacts(run.info.run_id, "reports")}


def test_sides_whose_columns_differ(here: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that one side has is named alone; one that neither has is answered with a column that works."""
    monkeypatch.chdir(tmp_path)
    right = [place % 2 for place in range(12)]
    old = tmp_path / "old.jsonl"
    table(old, right)
    table(tmp_path / "new.jsonl", [1, *right[1:]])
    words = ("old.jsonl", "new.jsonl")
    expected = compared(here, *words)["differences"]
    old.write_text(old.read_text().replace('"correct"', '"acc"'))
    found = compared(here, *words, "--columns", "correct=acc")
    assert found["differences"] == expected
    assert any("new.jsonl has no column 'acc'" in warning for warning in found["warnings"])
    assert "--columns correct=acc" in here.refused("bad_data", "compare", *words, "--columns", "correct=ac")


def test_a_terminal_of_80_columns_wraps_names_and_breaks_no_number(
    here: InProcess, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "width", lambda: 80)
    long = "gsm8k (flexible-extract), 5 examples"
    for name, right in (("a_model_with_a_long_name-base", 50), ("a_model_with_a_long_name-grpo", 60)):
        table(folder / f"{name}.jsonl", np.arange(100) < right, benchmark=long)
    shown = here("compare", "a_model_with_a_long_name-base.jsonl", "a_model_with_a_long_name-grpo.jsonl").stdout
    _, _, grid = shown.partition("\n")
    assert max(map(len, grid.splitlines())) <= 80
    # 10 problems of 100 gained, none lost: the error is sqrt((10 - 1) / 99 / 100); of the signs alone p is 2 / 2^10.
    assert ".500 .600 +.100 [+.040, +.160] .002 better" in re.sub(" +", " ", grid)
    assert "flexible-extract" in grid


def solved_of_100(path: Path, solved: int) -> None:
    rows = [f"sums,p{problem},{int(problem < solved)}" for problem in range(100)]
    path.write_text("\n".join(["benchmark,problem,correct", *rows]))


def test_a_run_and_its_history(here: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier runs solve 48 to 52 of 100: mean .500, sd .0158, and 2.776 x .0158 x sqrt(1 + 1/5) is .048."""
    monkeypatch.chdir(tmp_path)
    for solved in range(48, 53):
        solved_of_100(tmp_path / f"run{solved}.csv", solved)
    solved_of_100(tmp_path / "run60.csv", 60)
    solved_of_100(tmp_path / "run44.csv", 44)
    words = ("--history", "run*[!4].csv")
    # run60 matches the pattern, and is no part of its own history.
    shown = here("compare", "run60.csv", *words).stdout.splitlines()
    assert shown[0] == "run60 is above what 5 earlier runs do on sums (.600, expected [.452, .548])."
    solved_of_100(tmp_path / "far.csv", 99)
    assert "<.001" in here("compare", "far.csv", *words).stdout
    close = here("compare", "run60.csv", *words, "--margin", "0.2").stdout
    assert close.splitlines()[0] == shown[0]  # a margin changes nothing about the history
    assert "equivalent" in close
    gated = here("compare", "run44.csv", "--history", "run[45][0-9].csv", "--gate", "no-worse")
    assert (gated.returncode, gated.stdout.splitlines()[0]) == (
        1, "gate broken: sums no-worse (run44 -.060 [-.108, -.012])"
    )  # fmt: skip
    assert "of 5 gates of the baseline against itself (1 of its 5 repeats against the other 4), 0 (0%)" in " ".join(
        gated.stdout.split()
    )
    (document,) = here.json("compare", "run44.csv", "--history", "run4[89].csv")["comparisons"]
    assert document["differences"][0]["why"] == "2 earlier runs have no interval; at least 3 are needed"
    assert "named 'history'" in here.refused("duplicate_name", "compare", "--arm", "history=run44.csv", *words)
    assert "omit --over seeds" in here.refused("contradiction", "compare", "run44.csv", *words, "--over", "seeds")
    assert "in quotes" in here.refused("bad_input", "compare", "--history", "run48.csv", "run49.csv", "run44.csv")


def test_answers_that_changed_while_the_score_did_not(
    here: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 20 wrong answers 8 are other wrong answers; 10 problems gain, 2 lose."""
    monkeypatch.chdir(tmp_path)
    for name, answers in (
        ("old", ["7"] * 12 + ["1"] * 28),
        ("new", ["7"] * 10 + ["2"] * 2 + ["7"] * 10 + ["1"] * 10 + ["3"] * 8),
    ):
        rows = [
            {"problem": f"p{problem}", "correct": int(answer == "7"), "answer": answer}
            for problem, answer in enumerate(answers)
        ]
        pd.DataFrame(rows).to_json(f"{name}.jsonl", orient="records", lines=True)
    (row,) = compared(here, "old.jsonl", "new.jsonl")["differences"]
    assert (row["gained"], row["lost"], row["other_answers"]) == (10, 2, 8)
    shown = " ".join(here("compare", "old.jsonl", "new.jsonl", "--full").stdout.split())
    assert "results: 10 gained, 2 lost, 8 with the same score and another answer" in shown
    assert "p10 7 2 1.000 .000 -1.000" in shown


def test_of_many_benchmarks_the_mean_comes_first_and_the_rest_is_folded(here: InProcess, folder: Path) -> None:
    for side, right in (("few", 10), ("many", 12)):
        rows = [
            {"benchmark": f"subject {subject}", "problem": f"{subject} {at}", "correct": int(at < right - subject % 2)}
            for subject in range(30)
            for at in range(20)
        ]
        pd.DataFrame(rows).to_json(f"{side}.jsonl", orient="records", lines=True)
    shown = here("compare", "few.jsonl", "many.jsonl").stdout.splitlines()
    first = next(line for line in shown if line.startswith("mean "))
    assert shown.index(first) <= 8
    assert len(shown) < 60
    assert "more warnings: --full" in "\n".join(shown)
