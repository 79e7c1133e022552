"""`mcpo reproduce lm` from a model's folder to table and figure, by the command line that `make reproduce-lm` uses."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from mcpo_cli.runs import bases
from tests.engine import spec_of, work

pytestmark = pytest.mark.slow
QUICK = (
    "task=arithmetic task.max_ops=2 train.max_prompt=64 train.steps=2 train.prompts=8 "
    "train.mini_batch=4 train.rollouts=4 train.lr=1e-3 train.max_refills=200 train.temperature=0.3 eval.problems=4 "
    "eval.samples=2 eval.every=1 compute.tracking_uri=offline compute.threads=1"
)


def reproduce(home: Path, model: Path) -> dict[str, object]:
    command = [sys.executable, "-m", "mcpo_cli.main", "reproduce", "lm", f"model={model}", *QUICK.split(), "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"MCPO_HOME": str(home), "PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    return document


def test_table_and_figure_have_the_model_before_training(tmp_path: Path) -> None:
    home, spec = tmp_path / "home", spec_of("dapo")
    assert work(home, spec) == 0
    preset = tmp_path / "tiny.yaml"
    sizes = "hidden: 64\nlayers: 2\nheads: 2\nhead_dim: 32\nmlp: 192\nvocabulary: {}\nrope_theta: 100.0\n"
    vocabulary = len(spec.task.vocabulary)
    preset.write_text(f"name: tiny\npath: {bases.cached_base(home, spec)}\nscale: laptop\n{sizes.format(vocabulary)}")
    document = reproduce(home, preset)
    folder = home / "reports" / "laptop"
    table = (folder / "lm.md").read_text()
    assert table.count("before training") == 2  # in the sentence, and once in the grid for both arms
    assert (folder / "lm.png").stat().st_size > 10_000
    rows = pd.read_csv(folder / "lm.csv")
    held_out = rows[rows["quantity"] == "held-out pass@1"]
    assert sorted(held_out["step"].unique()) == [0, 1, 2]
    start = held_out[held_out["step"] == 0].set_index("arm")["value"]
    assert start["DAPO"] == start["MCPO"], "both arms start from the same model"
    shares = rows[rows["quantity"] != "held-out pass@1"].pivot(
        index=["arm", "step"], columns="quantity", values="value"
    )
    assert ((shares["mastered prompts"] + shares["all-wrong prompts"]) <= 1).all()
    # The second time, no run is trained.
    again = reproduce(home, preset)
    assert [len(list(run.glob("attempt_*"))) for run in (home / "runs").glob("*-tiny-*")] == [1, 1]
    assert again.keys() == document.keys()
