"""A set of reasoning-gym on the local engine, from the first draw to its numbers, as users type it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcpo_cli.runs.journal import Journal

pytest.importorskip("pycosat", reason="reasoning-gym needs it, and it takes a C compiler to build")

WORDS = ("task=gym", "task.data=reasoning_gym:spell_backward", 'task.config=["max_word_len=4"]', "task.draws=300")
LENGTHS = ("task.longest_question=60", "train.max_prompt=60")
QUICK = ("scale=smoke", "warmup.max_steps=20", "warmup.probe_every=20", "warmup.target_accuracy=0")


@pytest.mark.slow
def test_a_set_is_trained_on_evaluated_and_probed(tmp_path: Path) -> None:
    env = {**os.environ, "MCPO_HOME": str(tmp_path), "MLFLOW_TRACKING_URI": "offline", "NO_COLOR": "1"}

    def mcpo(*words: str) -> str:
        command = [sys.executable, "-m", "mcpo_cli.main", *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (trained,) = json.loads(mcpo("train", *WORDS, *LENGTHS, *QUICK, "--json"))["runs"]
    journal = Journal(tmp_path / "runs" / trained["run_id"])
    assert [row["step"] for row in journal.steps()] == [1, 2, 3]
    shown = {row["prompt"].lstrip("_") for row in journal.rows("groups")}
    evaluated = {row["problem"].lstrip("_") for row in journal.eval()}
    assert len(evaluated) == 6
    assert not shown & evaluated
    assert all(text.startswith("Spell this word backward (example: sun -> nus): ") for text in shown | evaluated)
    assert len(list((tmp_path / "cache" / "reasoning-gym").iterdir())) == 1

    results = json.loads(
        mcpo("evaluate", trained["run_id"], "--benchmarks", "gym", "--limit", "4", "n=2", "max_tokens=8", "--json")
    )
    graded = results["benchmarks"]["spell_backward"]
    assert graded["grader"] == "reasoning_gym 0.1.25 rules 3"
    assert graded["problems"] == 4
    assert "accuracy" in mcpo("probe", "mastery", trained["run_id"])


@pytest.mark.slow
def test_a_set_that_is_not_there_stops_a_run_before_it_begins(tmp_path: Path) -> None:
    env = {**os.environ, "MCPO_HOME": str(tmp_path), "MLFLOW_TRACKING_URI": "offline", "NO_COLOR": "1"}
    words = ["train", "task=gym", *QUICK, "task.data=reasoning_gym:spell_backwards"]
    command = [sys.executable, "-m", "mcpo_cli.main", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "reasoning_gym:spell_backwards: unknown set: did you mean 'spell_backward'" in done.stderr
    assert not (tmp_path / "runs").exists()
