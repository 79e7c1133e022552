"""A run of verl that samples with vLLM: the policy that samples stays the one that is trained."""

import pytest

from mcpo_cli.runs.journal import Journal
from tests.verl import LEFT_OUT
from tests.verl.conftest import TOY, Runs, nobody_is_left

pytestmark = pytest.mark.vllm
METHOD = ("method=clip_cov", "method.share=0.1", "method.cov_low=0", "train.mini_batch=8")
"""It sees the whole mini-batch before the gradient, so a step has one."""


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
    # Probes sample beside training; that each request has a seed does not make the rollouts of a prompt the same.
    assert {row["step"] for row in journal.rerolls()} == {1, 2, 3}
    assert max(row["metrics"]["sanity/duplicates_excess"] for row in steps) < 0.02
    # The V2 model runner needs a GPU.
    assert {row["metrics"]["verl/vllm_v2_model_runner"] for row in steps} == {0}
    assert nobody_is_left(folder)


def test_vllm_samples_with_the_matrices_of_lora_beside_the_weights(runs: Runs) -> None:
    del runs.env[LEFT_OUT]
    lora = ("model.lora_rank=4", "train.lr=0.01", "train.lr_warmup_steps=0", "train.steps=2", "eval.every=2")
    result = runs("train", *TOY, *lora, "method=grpo", "cluster.rollout=vllm", "probe.every=0", "probe.panel_every=0")
    assert result.returncode == 0, result.stdout
    steps = Journal(runs.folder("grpo")).steps()
    assert steps[0]["metrics"]["train/grad_norm"] > 0
    # In the second step it samples with the matrices that the first has moved.
    assert max(row["metrics"]["verl/training/rollout_probs_diff_max"] for row in steps) < 1e-4
    assert nobody_is_left(runs.folder("grpo"))
