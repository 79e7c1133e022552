"""LoRA under verl (`model.lora_rank`): the trained, the sampling and the exported policy are equal."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.backends.verl import checkpoint
from mcpo_cli.backends.verl.checkpoint import LORA_A as A
from mcpo_cli.backends.verl.checkpoint import LORA_B as B
from mcpo_cli.backends.verl.checkpoint import PEFT_PREFIX as PREFIX
from mcpo_cli.config import cost
from mcpo_cli.config.load import load
from mcpo_cli.runs.journal import Journal, read_json, read_lines
from tests.verl import LEFT_OUT
from tests.verl.conftest import TOY, TRAINED, Runs, status
from tests.verl.test_equivalence import G, P, of_ranks, rollouts

pytestmark = pytest.mark.verl
__all__ = ["rollouts"]
RANKS, SCALE = 2, 8 / 4
SETTINGS = ("model.lora_rank=4", "model.lora_alpha=8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lora")


@pytest.fixture(scope="module")
def found(rollouts: Rollouts, folder: Path) -> Any:
    """The results of two ranks of verl's engine, whose files are in `folder`."""
    return of_ranks(rollouts, folder, RANKS, 1, "lora_process")


def test_training_starts_from_the_model_and_its_gradient_is_that_of_all_weights_projected(found: Any) -> None:
    """With B = 0 the layer's weights are W: dL/dB = scale dL/dW A', and dL/dA = scale B' dL/dW = 0."""
    (loss, gradient), (loss_of_lora, gradient_of_lora) = found["full"], found["lora"]
    assert loss_of_lora == pytest.approx(loss, abs=1e-6)
    layers = {name.removesuffix(B) for name in gradient_of_lora if name.endswith(B)}
    # Seven linear layers in each of two blocks.
    assert len(layers) == 14
    assert gradient_of_lora.keys() == {layer + matrix for layer in layers for matrix in (A, B)}
    for layer in layers:
        weight_OI = gradient[layer.removeprefix(PREFIX) + ".weight"]
        expected_OR = SCALE * weight_OI @ found["drawn"][layer + A].T
        assert expected_OR.norm() > 0
        assert float((gradient_of_lora[layer + B] - expected_OR).norm()) <= 1e-4 * float(expected_OR.norm()), layer
        assert not gradient_of_lora[layer + A].any()
        assert not found["drawn"][layer + B].any()


def test_the_first_matrices_come_from_the_seed_whatever_the_ranks(found: Any) -> None:
    """As peft draws them: uniform, at most 1 / sqrt(inputs)."""
    generator, first = torch.Generator().manual_seed(7), next(name for name in found["drawn"] if name.endswith(A))
    assert torch.equal(found["drawn"][first], torch.empty(4, 64).uniform_(-1 / 8, 1 / 8, generator=generator))
    assert len({float(drawn.sum()) for name, drawn in found["drawn"].items() if name.endswith(A)}) == 14


def test_only_the_matrices_have_moments_and_are_kept_of_the_previous_policy(found: Any) -> None:
    spec = load(["scale=verl-cpu", *SETTINGS])[0]
    counted = sum(drawn.numel() for drawn in found["drawn"].values())
    assert counted == cost.weights(spec).trained
    # Shards of two ranks are halves.
    assert found["moments"] == found["kept"] == counted / RANKS


def test_the_previous_policy_is_that_before_the_step(found: Any) -> None:
    assert torch.equal(found["swapped"].values(), found["before"].values())
    assert (found["after"].values() - found["before"].values()).abs().max() > 0.01


def test_what_is_exported_is_the_policy_that_was_trained(folder: Path, found: Any, rollouts: Rollouts) -> None:
    spec = load(["scale=verl-cpu", *SETTINGS])[0]
    checkpoint.export(folder, 1, folder / "exported", spec)
    after = torch.cat(log_probs(folder / "exported", rollouts)[::RANKS])
    assert (after - found["after"].values()).abs().max() < 1e-5
    before = torch.cat(log_probs(folder / "model", rollouts)[::RANKS])
    assert (before - found["before"].values()).abs().max() < 1e-5


def log_probs(model: Path, rollouts: Rollouts) -> list[Tensor]:
    """Log-probabilities of the response tokens of each sequence, by transformers' own forward pass."""
    policy = AutoModelForCausalLM.from_pretrained(model)
    prompts = rollouts.prompt_PS.repeat_interleave(G, 0)
    found = []
    for place in range(P * G):
        response_T = rollouts.token_PGT.flatten(0, 1)[place, : rollouts.length_PG.flatten()[place]]
        with torch.no_grad():
            logits_TV = policy(torch.cat([prompts[place], response_T])[None]).logits[0, len(prompts[place]) - 1 : -1]
        found.append(logits_TV.log_softmax(-1).gather(-1, response_T[:, None]).squeeze(-1))
    return found


@pytest.mark.slow
def test_a_run_that_broke_off_goes_on_with_the_same_numbers_and_is_exported(runs: Runs) -> None:
    """Its hinge is active: with a budget of 0, every change by the last gradient step counts."""
    method = ("method=mcpo", "method.anchor=previous_step", "method.delta=0", "train.lr_warmup_steps=0")
    rarely = ("compute.checkpoint_every=1", "probe.every=0", "probe.panel_every=0", "eval.every=2")
    settings = (*TOY, *SETTINGS, *method, *rarely, "train.lr=0.01", "train.steps=2")
    # The second checkpoint cannot be completed.
    assert runs("train", *settings, "cluster.plugin=tests.verl.faults.seal").returncode == 1
    folder = runs.folder("mcpo")
    assert status(folder)["durable_step"] == 1
    result = runs("train", *settings)
    assert result.returncode == 0, result.stdout
    journal = Journal(folder)
    assert read_json(folder / "attempt_2" / "status.json")["start_step"] == 1
    again = of_training(journal.steps()[1])
    assert again == of_training(read_lines(folder / "attempt_1" / "metrics.jsonl")[1])
    assert again["train/grad_norm"] > 0
    felt = {(row["step"], row["mini_batch"]): row["sums"]["hinge/prompts_felt"][0] for row in journal.mini_batches()}
    assert felt[1, 1] == 0 < felt[2, 1]
    for metrics in (row["metrics"] for row in journal.steps()):
        # The rollout engine has the matrices that were trained.
        assert metrics["sanity/logp_difference"] < 1e-4
        assert metrics["sanity/noise_floor"] == 0
    exported = Path(runs.json("export", folder.name)["folder"])
    assert "LoRA of rank 4, alpha 8" in (exported / "README.md").read_text(encoding="utf-8")
    base = runs.home / "cache" / "base" / load(settings)[0].base_id
    before, after = (AutoModelForCausalLM.from_pretrained(model).state_dict() for model in (base, exported))
    assert before.keys() == after.keys()
    assert {name for name in before if not torch.equal(before[name], after[name])} == {
        name for name in before if name.endswith("_proj.weight")
    }


@pytest.mark.vllm
def test_vllm_samples_with_the_matrices_beside_the_weights(runs: Runs) -> None:
    """The method is MCPO as the paper has it, whose mastered prompts have no gradient in the first mini-batch."""
    del runs.env[LEFT_OUT]
    once = ("train.lr=0.01", "train.lr_warmup_steps=0", "train.steps=2", "eval.every=2")
    unprobed = ("probe.every=0", "probe.panel_every=0")
    result = runs("train", *TOY, *SETTINGS, *once, *unprobed, "method=mcpo", "cluster.rollout=vllm")
    assert result.returncode == 0, result.stdout
    journal = Journal(runs.folder("mcpo"))
    steps = journal.steps()
    assert steps[0]["metrics"]["train/grad_norm"] > 0
    # In the second step it samples with the matrices that the first has changed.
    assert max(row["metrics"]["verl/training/rollout_probs_diff_max"] for row in steps) < 1e-4
    # Mastered prompts of the first mini-batch stay out of its update, but are reported.
    first = [row["sums"] for row in journal.mini_batches() if row["mini_batch"] == 1]
    assert {sums["hinge/prompts_felt"][0] for sums in first} == {0}
    assert any(sums["hinge/prompts_felt"][1] for sums in first)


def of_training(row: Any) -> dict[str, float]:
    return {name: value for name, value in row["metrics"].items() if name.startswith(TRAINED)}
