"""`mcpo probe atlas`, which is about methods, not runs."""

import json
from pathlib import Path

import pandas as pd
import pytest

from mcpo_cli import methods
from mcpo_cli.config import plan
from mcpo_cli.measures import atlas
from mcpo_cli.measures.estimators import sampling
from mcpo_cli.runs.journal import write_atomic
from tests.cli.conftest import InProcess
from tests.fakes import write_runs

FEW = (*(atlas.Condition(G, k) for G in (4, 16) for k in (0, 4)), atlas.Condition(16, 0, 1.0, "none"))


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atlas, "conditions", lambda: list(FEW))
    monkeypatch.setattr(sampling, "ROLLOUTS", 10_000)
    monkeypatch.setattr(sampling, "SINGLY", 40)


def test_it_asks_about_every_method_and_trains_none(here: InProcess) -> None:
    asked = here.json("probe", "atlas", "--dry-run")["runs"]
    assert [run["spec"]["method"]["name"] for run in asked] == sorted(methods.registry())
    assert here.untouched()


@pytest.mark.slow
def test_a_table_a_figure_and_its_rows_are_written(here: InProcess) -> None:
    found = here.json("probe", "atlas", "method=grpo,mc_grpo", "seed=0,1", "train.rollouts=17")
    assert [run["arm"] for run in found["runs"]] == ["grpo", "mc_grpo"]
    assert [run["values"]["rollouts"] for run in found["runs"]] == [16, 17]
    folder = here.home / "reports" / "toy"
    rows = pd.read_csv(folder / "probe-atlas-rows.csv")
    assert [*rows["arm"]] == ["grpo"] * len(FEW) + ["mc_grpo"] * len(FEW)
    assert [*rows["size"]] == [4, 4, 16, 16, 16, 5, 5, 17, 17, 17]
    assert rows["cosine"].between(0, 1).all()
    for ending in ("png", "pdf", "md"):
        assert (folder / f"probe-atlas.{ending}").stat().st_size
    assert not (here.home / "runs").exists()


@pytest.mark.slow
def test_the_arms_of_a_suite_are_asked_about_once_each(here: InProcess) -> None:
    arms = list(plan.read("methods-baselines").arms)
    shown = here("probe", "atlas", "methods-baselines")
    assert shown.returncode == 0, shown.stderr
    assert f"{arms[-1]}: {len(arms)} of {len(arms)}" in shown.stderr
    rows = pd.read_csv(here.home / "reports" / "toy" / "probe-atlas-methods-baselines-rows.csv")
    assert list(dict.fromkeys(rows["arm"])) == arms


def test_a_run_is_asked_about_by_its_method(here: InProcess) -> None:
    made = plan.from_overrides(["scale=smoke", "method=rloo", "train.rollouts=4", "compute.tracking_uri=offline"])
    write_runs(made)
    (cell,) = made.cells
    write_atomic(here.home / "runs" / cell.spec.run_id / "spec.json", json.dumps(cell.spec.to_dict()))
    (run,) = here.json("probe", "atlas", cell.spec.run_id)["runs"]
    assert run["run_id"] == cell.spec.run_id
    assert {row["size"] for row in run["tables"]["atlas"]} == {4, 16}
    assert Path(run["records"]).is_dir()
