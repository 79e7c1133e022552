"""Results for other tools and other people: `mcpo runs export`, `bundle` and `unbundle`."""

from pathlib import Path

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.home import run_dir
from mcpo_cli.measures.frames import RUN, Runs
from tests.cli.conftest import InProcess
from tests.store_runs import made_up

SUITE = ("table1", "scale=smoke", "model=toy-s")


@pytest.fixture
def plan(here: InProcess, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "offline")
    made = from_suite(SUITE[0], SUITE[1:], "")
    made_up(made, probed=True)
    return made


def read(folder: Path) -> dict[str, pd.DataFrame]:
    return {path.stem: pd.read_parquet(path) for path in folder.glob("*.parquet")}


def test_each_file_is_a_tidy_table_of_all_runs(here: InProcess, plan: Plan, tmp_path: Path) -> None:
    target = tmp_path / "data"
    document = here.json("runs", "export", *SUITE, "--to", str(target))
    tables = read(target)
    assert document["rows"] == {name: len(frame) for name, frame in tables.items()}
    assert tables.keys() == {*("settings", "steps", "scores", "groups", "eval", "rerolls", "mini_batches", "gradients")}
    ids = {run.spec.run_id for run in plan.runs}
    for frame in tables.values():
        assert list(frame.columns[: len(RUN)]) == list(RUN)
        assert set(frame["run_id"]) == ids
    runs = Runs(plan)
    assert_frame_equal(tables["steps"], runs.steps(), check_dtype=False)
    assert_frame_equal(tables["eval"], runs.eval(step="all"), check_dtype=False)
    for name, keys in {
        "settings": ["setting"],
        "steps": ["step"],
        "scores": ["step", "tier"],
        "groups": ["step", "prompt"],
        "eval": ["step", "tier", "problem"],
        "mini_batches": ["step", "mini_batch", "metric"],
    }.items():
        assert not tables[name].duplicated(["run_id", *keys]).any(), name
    rates = tables["settings"].query("setting == 'train.lr'")
    assert set(map(float, rates["value"])) == {run.spec.train.lr for run in plan.runs}


def test_without_words_all_done_runs_are_exported_and_nothing_is_overwritten(
    here: InProcess, plan: Plan, tmp_path: Path
) -> None:
    target = tmp_path / "data"
    assert here.json("runs", "export", "--to", str(target))["runs"] == len(plan.runs)
    before = {path: path.read_bytes() for path in target.iterdir()}
    assert str(target) in here.refused("bad_input", "runs", "export", "--to", str(target))
    assert {path: path.read_bytes() for path in target.iterdir()} == before
    assert here("runs", "export", "table2", "scale=smoke", "--to", str(tmp_path / "other")).returncode == 3
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == ["data"]


def test_an_unfinished_suite_is_not_bundled(here: InProcess, plan: Plan, tmp_path: Path) -> None:
    (run_dir(plan.runs[0].spec.run_id) / "attempt_1" / "metrics.jsonl").unlink()
    (run_dir(plan.runs[0].spec.run_id) / "attempt_1" / "sums.json").unlink()
    said = here.refused("missing_runs", "runs", "bundle", *SUITE, str(tmp_path / "file"))
    assert f"1 of {len(plan.runs)}" in said
    assert not (tmp_path / "file").exists()
