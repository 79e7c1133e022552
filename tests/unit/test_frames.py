"""Frames hold the data of the journals, with fixed types and without gaps."""

import importlib.metadata
import json
import math
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.home import run_dir
from mcpo_cli.measures import frames
from mcpo_cli.measures.frames import Runs
from mcpo_cli.records import AXES
from mcpo_cli.runs import provenance
from mcpo_cli.runs.journal import seal
from tests.fakes import TIERS, write_run, write_runs


@pytest.fixture
def plan(mcpo_home: Path) -> Plan:
    """Runs that were not trained."""
    return from_suite("table1", ["scale=smoke", "model=toy-s", "seed=0,1"], "mcpo reproduce table1")


def _rows(run_id: str, kind: str, step: int) -> list[dict[str, object]]:
    path = run_dir(run_id) / "attempt_1" / kind / f"step_{step:06d}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_eval_frame_holds_the_last_evaluation_or_all(table1: Plan, runs: Runs) -> None:
    per_step = runs.eval(step="all").groupby("step").size().to_dict()
    assert per_step == dict.fromkeys([0, 2, 3], len(table1.runs) * 3 * 6)
    frame = runs.eval()
    assert set(frame["step"]) == {3}
    assert frame["tier"].unique().tolist() == list(TIERS)
    for run in table1.runs:
        mine = frame[frame["run_id"] == run.spec.run_id]
        assert mine[["arm", "method", "model", "seed"]].drop_duplicates().values.tolist() == [
            [run.arm, run.spec.method.name, "toy-s", run.spec.seed]
        ]
        rows = _rows(run.spec.run_id, "eval", 3)
        assert mine[["step", "tier", "problem", "n", "c"]].to_dict("records") == rows


def test_steps_frame_has_a_column_a_metric_and_nan_where_undefined(table1: Plan, runs: Runs) -> None:
    frame = runs.steps()
    metrics = [
        *sorted(AXES),
        "mastery/all_wrong",
        "mastery/mastered",
        "train/accuracy",
        "train/entropy",
        "train/hinge_loss",
    ]
    assert frame.columns.tolist() == [*frames.RUN, "step", *metrics]
    assert all(frame[name].dtype == "float64" for name in metrics)
    assert frame["step"].tolist() == [1, 2, 3] * len(table1.runs)
    assert frame["train/entropy"].tolist() == [1, 1 / 2, 1 / 3] * len(table1.runs)
    assert frame.loc[frame["method"] == "dapo", "train/hinge_loss"].isna().all()
    penalty = frame.loc[(frame["method"] == "mcpo") & (frame["seed"] == 0), "train/hinge_loss"].tolist()
    assert penalty == pytest.approx([math.nan, 0.25, math.nan], nan_ok=True)


def test_groups_frame_holds_every_group(table1: Plan, runs: Runs) -> None:
    frame = runs.rows("groups")
    run_id = table1.runs[0].spec.run_id
    rows = [row for step in (1, 2, 3) for row in _rows(run_id, "groups", step)]
    mine = frame[frame["run_id"] == run_id]
    columns = ["step", "prompt", "p", "mean_length", "kept"]
    assert mine[columns].to_dict("records") == [{name: row[name] for name in columns} for row in rows]


def test_the_code_of_an_installed_package_is_known_by_its_files(
    plan: Plan, mcpo_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan.runs[0]
    write_run(run.spec, None)
    monkeypatch.setattr(provenance, "SOURCE", tmp_path)
    files = ["mcpo_cli/a.py,sha256=1,2", "mcpo_cli/b.py,sha256=3,4"]

    real = importlib.metadata.distribution

    def installed(lines: list[str]) -> str:
        listed = SimpleNamespace(read_text=lambda _: "\n".join([*lines, "../../bin/mcpo,sha256=9,9"]))
        # Modules that are imported meanwhile may ask for their own packages.
        asked = {provenance.DISTRIBUTION: listed}
        monkeypatch.setattr(importlib.metadata, "distribution", lambda name: asked.get(name) or real(name))
        return provenance.code_name(provenance.code_state())

    assert installed(files) == installed(files[::-1]) != installed([files[0], "mcpo_cli/b.py,sha256=5,4"])
    assert re.fullmatch(r"[\d.]+\+[0-9a-f]{12}", installed(files))
    provenance.write(mcpo_home / "runs" / run.spec.run_id / "attempt_1", ["mcpo"])
    assert frames.tree(run) == "clean"
    assert f"commit {installed(files)}" not in " ".join(frames.code_marks([run]))


def test_a_change_in_any_encoding_is_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "SOURCE", tmp_path)
    (tmp_path / "pyproject.toml").write_text("name")
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "a")):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "pyproject.toml").write_bytes("Käse".encode("latin-1"))
    assert "+K\ufffdse" in provenance.code_state()["diff"]


def test_one_dirty_attempt_makes_the_run_dirty(plan: Plan) -> None:
    run = plan.runs[0]
    for dirty in (None, True, False):
        write_run(run.spec, dirty)
    assert frames.tree(run) == "dirty"


def test_every_kind_of_row_has_the_types_of_its_schema(runs: Runs) -> None:
    for kind in frames.ROWS:
        assert runs.rows(kind).dtypes.astype(str).to_dict() == frames.dtypes(kind)
    mini = frames.dtypes("mini_batches")
    assert (mini["step"], mini["mini_batch"], mini["sums"]) == ("int64", "int64", "object")
    again = frames.dtypes("rerolls"), frames.dtypes("gradients")
    assert (again[0]["source"], again[1]["weight"]) == ("string", "float64")


def test_a_journal_is_read_once(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    first = runs.steps(), runs.rows("groups"), runs.eval()
    monkeypatch.setattr("mcpo_cli.runs.journal.Journal.check", None)
    again = runs.steps(), runs.rows("groups"), runs.eval()
    assert all(one.equals(two) for one, two in zip(first, again, strict=True))


def test_marks_say_what_a_reader_must_know(plan: Plan, mcpo_home: Path) -> None:
    write_runs(plan)
    assert Runs(plan).marks() == []
    ids = [run.spec.run_id for run in plan.runs]
    folders = [mcpo_home / "runs" / run_id / "attempt_1" for run_id in ids]
    (folders[0] / "provenance.json").write_text(json.dumps({"commit": "1" * 40, "dirty": True}))
    (folders[1] / "provenance.json").unlink()
    metrics = folders[2] / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    rows = [json.loads(line) for line in lines]
    rows[1]["metrics"]["train/entropy"] = "nan"
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    seal(folders[2])
    dirty, unknown, commits, nan = Runs(plan).marks()
    assert dirty == f"1 of 4 runs: trained from a working tree with uncommitted changes ({ids[0]})"
    assert unknown == f"1 of 4 runs: no record of the working tree ({ids[1]})"
    assert commits == f"runs of several commits: {'0' * 12} (2), {'1' * 12} (1)"
    assert nan == f"{ids[2]}: train/entropy was NaN or infinite at 1 steps (first: 2)"
    for folder in folders:
        (folder / "provenance.json").write_text(json.dumps({"commit": "1" * 40, "dirty": True}))
    assert "4 of 4 runs: trained from a working tree with uncommitted changes" in Runs(plan).marks()
