"""A run of verl that samples with vLLM: the sampling policy stays equal to the trained one."""

import pytest

from mcpo_cli.runs.journal import Journal
from tests.gpu.notes import Notes, read
from tests.gpu.parts import training
from tests.gpu.report import Result
from tests.verl import LEFT_OUT
from tests.verl.conftest import TOY, Runs, nobody_is_left

pytestmark = pytest.mark.vllm
METHOD = ("method=clip_cov", "method.share=0.1", "method.cov_low=0", "train.mini_batch=8")
"""A method that sees the whole mini-batch before the gradient, so that a step has one mini-batch."""


def test_vllm_follows_the_policy_through_updates(runs: Runs) -> None:
    del runs.env[LEFT_OUT]
    result = runs("train", *TOY, *METHOD, "train.steps=3", "cluster.rollout=vllm")
    assert result.returncode == 0, result.stdout
    folder = runs.folder("clip_cov")
    journal = Journal(folder)
    steps = journal.steps()
    assert [row["step"] for row in steps] == [1, 2, 3]
    # The first update has moved the weights by the second step.
    assert steps[0]["metrics"]["train/grad_norm"] > 0
    assert max(row["metrics"]["verl/training/rollout_probs_diff_max"] for row in steps) < 1e-4
    # Probes sample next to training; although each request has a seed, rollouts of a prompt differ.
    assert {row["step"] for row in journal.rerolls()} == {1, 2, 3}
    assert max(row["metrics"]["sanity/duplicates_excess"] for row in steps) < 0.02
    # The V2 model runner needs a GPU.
    assert {row["metrics"]["verl/vllm_v2_model_runner"] for row in steps} == {0}
    assert nobody_is_left(folder)
    # The data of a run that part E of `make gpu-check` reads.
    notes, found = Notes(runs.home / "notes"), Result("E", "a run")
    training.report(notes, [row["metrics"] for row in steps], 0.0)
    read(notes.file, found)
    assert len(found.figures) == 6
    assert all(figure.holds for figure in found.figures)
