"""A set of reasoning-gym on the local engine, from the first draw to its numbers, as users type it."""

import pytest

from mcpo_cli.runs.journal import Journal
from tests.cli.conftest import InProcess

pytest.importorskip("pycosat", reason="reasoning-gym needs it, and it takes a C compiler to build")

SHORT = ("task=gym", "task.data=reasoning_gym:spell_backward", 'task.config=["max_word_len=4"]', "task.draws=300")
LENGTHS = ("task.longest_question=60", "train.max_prompt=60")
QUICK = ("scale=smoke", "warmup.max_steps=20", "warmup.probe_every=20", "warmup.target_accuracy=0")
OFFLINE = "compute.tracking_uri=offline"


@pytest.mark.slow
def test_a_set_is_trained_on_evaluated_and_probed(here: InProcess) -> None:
    (trained,) = here.json("train", *SHORT, *LENGTHS, *QUICK, OFFLINE)["runs"]
    journal = Journal(here.home / "runs" / trained["run_id"])
    assert [row["step"] for row in journal.steps()] == [1, 2, 3]
    shown = {row["prompt"].lstrip("_") for row in journal.rows("groups")}
    evaluated = {row["problem"].lstrip("_") for row in journal.eval()}
    assert len(evaluated) == 6
    assert not shown & evaluated
    assert all(text.startswith("Spell this word backward (example: sun -> nus): ") for text in shown | evaluated)
    assert len(list((here.home / "cache" / "reasoning-gym").iterdir())) == 1

    words = ("evaluate", trained["run_id"], "--benchmarks", "gym", "--limit", "4", "n=2", "max_tokens=8", OFFLINE)
    graded = here.json(*words, "grading.workers=1")["benchmarks"]["spell_backward"]
    assert graded["grader"] == "reasoning_gym 0.1.25 rules 3"
    assert graded["problems"] == 4
    probed = here("probe", "mastery", trained["run_id"])
    assert (probed.returncode, "accuracy" in probed.stdout) == (0, True), probed.stderr


@pytest.mark.slow
def test_a_set_that_is_not_there_stops_a_run_before_it_begins(here: InProcess) -> None:
    said = here.refused("unknown_name", "train", "task=gym", *QUICK, "task.data=reasoning_gym:spell_backwards", OFFLINE)
    assert "reasoning_gym:spell_backwards: unknown set: did you mean 'spell_backward'" in said
    assert not (here.home / "runs").exists()
