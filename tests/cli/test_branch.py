"""`mcpo fork STUDY`: from a study's file to its table, and again."""

from pathlib import Path

import pandas as pd
import pytest
import yaml

from tests.cli.conftest import InProcess

SMALL = (
    "method=dapo method.dynamic_sampling=false train.steps=2 train.prompts=32 train.rollouts=4 train.mini_batch=16 "
    "probe.every=0 probe.panel_every=0 eval.problems=10 eval.samples=1"
)
SIZES = {"controls": 4, "held_out": 2}
ARMS = {"trunk": [], "hinge": ["method=mcpo", "method.reweight=false"], "half": ["train.lr=3.5e-4"]}


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.yaml"
    study = {"title": "Mine", "trunk": SMALL.split(), "at": [1, 2], "arms": ARMS, "curve": ["half", "trunk"]}
    path.write_text(yaml.safe_dump(study | {"sizes": SIZES}, sort_keys=False))
    return str(path)


def test_a_dry_run_shows_the_trunk_runs(here: InProcess) -> None:
    words = ("fork", "toy", "seed=0", "base_seed=0,1", "--dry-run")
    document = here.json(*words)
    assert [run["arm"] for run in document["runs"]] == ["trunk", "trunk"]
    assert document["command"] == "mcpo fork toy seed=0 base_seed=0,1"
    assert "at each of 6 points; that is not in the forecast" in here(*words).stderr
    assert here.untouched()


def test_a_run_needs_the_step_of_its_forks(here: InProcess) -> None:
    spec = here.home / "runs" / "dapo-toy-s-s0-abc" / "spec.json"
    spec.parent.mkdir(parents=True)
    spec.touch()
    assert "--at STEP" in here.refused("bad_input", "fork", "dapo-toy-s")


@pytest.mark.slow
def test_a_study_from_its_file_to_its_table(here: InProcess, warm_home: Path, mine: str) -> None:
    words = ("fork", mine, "seed=0,1", "compute.tracking_uri=offline")
    done = here(*words)
    assert done.returncode == 0, done.stderr
    assert "A global step of trunk takes" in done.stdout
    assert "4 branch points of 2 trunk runs" in done.stdout
    assert "4 of 4 points measured, about 0:00 left" in done.stderr
    files = {path.name for path in (warm_home / "reports" / "toy").glob("branch-mine*")}
    made = {f"branch-mine.{kind}" for kind in ("csv", "json", "md", "pdf", "png", "tex")}
    assert files == {*made, "branch-mine-rows.csv"}
    rows = pd.read_csv(warm_home / "reports" / "toy" / "branch-mine-rows.csv")
    assert rows.groupby(["run_id", "step", "arm"]).ngroups == 2 * 2 * 3
    attempts = sorted((warm_home / "runs").glob("*/attempt_*"))
    again = here.json(*words)
    assert sorted((warm_home / "runs").glob("*/attempt_*")) == attempts, "nothing is trained twice"
    assert len(again["points"]) == 4
    assert all(Path(point["records"]).is_dir() for point in again["points"])
    checkpoints = {path.name for path in (warm_home / "runs").glob("*/attempt_1/checkpoints/*")}
    assert checkpoints == {"step_000001", "step_000002"}, "what compute.checkpoints_after=2 leaves"
