"""Time, memory and disk of runs, against numbers that are published, measured or computed by hand."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcpo_cli.backends import local
from mcpo_cli.config import cost
from mcpo_cli.config.cost import GpuCost
from mcpo_cli.config.eval_schedule import eval_problems
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.machine import GIB
from tests.errors import refused


def spec(*overrides: str) -> RunSpec:
    return load(["scale=paper", *overrides])[0]


def on_gpus(run: RunSpec) -> GpuCost:
    """The cost of a run that trains on GPUs."""
    gpus = cost.estimate(run).gpus
    assert gpus
    return gpus


@pytest.mark.parametrize(
    ("model", "billions"), [("qwen3-0.6b", 0.596), ("qwen3-1.7b", 1.72), ("qwen3-8b", 8.19), ("qwen3-14b", 14.77)]
)
def test_parameters_are_those_that_are_published(model: str, billions: float) -> None:
    assert cost.weights(spec(f"model={model}")).count / 1e9 == pytest.approx(billions, rel=2e-3)


def test_tokens_and_operations_by_hand() -> None:
    run = spec("model=qwen3-8b", "train.steps=1", "eval.every=1", "task.benchmarks=[aime24]")
    about = on_gpus(run)
    batch = 128 * 16
    assert about.trained == batch * (200 + 5120)
    # The base policy and the only step are evaluated: 30 problems, 8 samples.
    assert about.sampled == (batch + 2 * 30 * 8) * 5120
    weights = cost.weights(run).count - 4096 * 151936
    operations = 2 * weights + 4 * 36 * 4096 * (200 + 2560)
    training = about.trained * operations * 5 / (989e12 * 0.35)
    assert about.seconds == pytest.approx(about.sampled * operations / (989e12 * 0.052) + training)
    assert about.checkpoint == 12 * cost.weights(run).count
    assert about.disk == 3 * about.checkpoint


def test_a_gpu_samples_as_many_tokens_of_8b_as_reported() -> None:
    once, twice = (on_gpus(spec("model=qwen3-8b", "train.steps=1", f"eval.samples={n}")) for n in (8, 16))
    # Only evaluations sample tokens that are not trained on.
    assert (twice.sampled - once.sampled) / (twice.seconds - once.seconds) == pytest.approx(3070, rel=0.01)


def test_memory_shrinks_with_what_is_shared() -> None:
    one, two, whole = (cost.gpu_bytes(spec(*more)) for more in ([], ["cluster.nodes=2"], ["cluster.tensor_parallel=1"]))
    assert two["trains"] < one["trains"]
    assert two["samples"] == one["samples"]
    assert whole["samples"] == 2 * one["samples"]
    weights, cache = 2 * cost.weights(spec()).count, 4 * 36 * 8 * 128 * 22528
    assert one["samples"] == pytest.approx((weights + cache) / 2 / 0.7)


def test_attention_between_all_tokens_of_a_pass_needs_a_mask() -> None:
    masked = cost.gpu_bytes(spec("cluster.attention=sdpa"))["trains"] - cost.gpu_bytes(spec())["trains"]
    assert masked == 24576**2 * 3


CPU = ("model=smollm2-135m", "train.steps=1", "eval.every=1", "probe.every=0", "probe.panel_every=0")


def on_cpu(*overrides: str) -> float:
    """Modelled seconds of one step of a pretrained model on two cores, with the two evaluations around it."""
    return cost.estimate(load([*CPU, *overrides])[0]).training


def test_what_a_step_of_a_pretrained_model_takes_by_hand() -> None:
    """16 prompts x 8 rollouts of sums: the worked examples, which all prompts share, are not counted."""
    run = load(CPU)[0]
    question, response = run.task.question_tokens(), run.task.expected_tokens(run.train.max_response)[1]
    group = question + 8 * response
    assert group < 40
    tokens = 16 * group * (1 + 3 / 2) + 2 * eval_problems(run) * group
    assert on_cpu() == pytest.approx(tokens * 2 * cost.weights(run).count / (2 * cost.OPERATIONS_PER_CORE))


def test_a_penalty_trains_all_groups_and_passes_them_through_one_more_policy() -> None:
    run = load(CPU)[0]
    group = run.task.question_tokens() + 8 * run.task.expected_tokens(run.train.max_response)[1]
    of_a_token = 2 * cost.weights(run).count / (2 * cost.OPERATIONS_PER_CORE)
    assert on_cpu("method=grpo_kl") - on_cpu("method=grpo") == pytest.approx(16 * group * (4 - 3 / 2) * of_a_token)
    plain, kept = (on_gpus(spec(f"method={name}")) for name in ("grpo", "grpo_kl"))
    assert kept.trained == plain.trained
    assert cost.operations(spec("method=grpo_kl"), 0, 5) == cost.operations(spec("method=grpo"), 0, 6)


WEIGHTS = 134_479_872
"""Weights of SmolLM2-135M without norms: 49152 x 576 + 30 x (2 x 576 x 576 + 2 x 576 x 192 + 3 x 576 x 1536)."""


def laptop(*words: str) -> RunSpec:
    method = [] if any(word.startswith("method=") for word in words) else ["method=dapo"]
    return load(["model=smollm2-135m", *method, *words])[0]


def test_a_step_of_smollm2_fits_into_the_memory_that_was_measured() -> None:
    # Measured: 2.9 GB at its peak. State 12 bytes a weight, gradients 4.
    needed = cost.estimate(laptop()).memory
    assert 16 * WEIGHTS < needed < 4.5e9


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """A machine with 3 GiB of free memory and 3 GiB of free disk."""
    machine = SimpleNamespace(memory=3 * GIB, disk=3 * GIB)
    monkeypatch.setenv("MCPO_HOME", str(tmp_path / "not" / "there"))
    monkeypatch.setattr(local.psutil, "virtual_memory", lambda: SimpleNamespace(available=machine.memory))
    monkeypatch.setattr(local.shutil, "disk_usage", lambda _: SimpleNamespace(free=machine.disk))
    return machine


def test_what_cannot_fit_is_refused(small: Any) -> None:
    with refused("bad_input", "memory", "3.0 GiB") as caught:
        local.BACKEND.check_machine(cost.estimate(laptop()))
    assert caught.value.fix is not None
    assert "compute.micro_batch_tokens=512" in caught.value.fix
    small.memory = 8 * GIB
    with refused("cannot_write", "3.8 GB", "disk", "3.2 GB are free"):
        local.BACKEND.check_machine(cost.estimate(laptop()))
    small.disk = 8 * GIB
    local.BACKEND.check_machine(cost.estimate(laptop()))


@pytest.mark.parametrize(
    ("dtype", "instructions", "words"),
    [
        ("auto", "avx2", "products in float32"),
        ("auto", "avx512_bf16 avx2", "float32; this processor has avx512_bf16: compute.dtype=bfloat16"),
        (
            "bfloat16",
            "amx_bf16 avx512_bf16",
            r"in bfloat16 \(amx_bf16\); weights, attention and log-probabilities in float32",
        ),
        ("bfloat16", "avx2", "warning: products in bfloat16, .* no instructions: float32 is faster"),
    ],
)
def test_the_formats_of_products_are_those_of_the_processor(
    dtype: str, instructions: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local.provenance, "instructions", instructions.split)
    assert re.search(words, local.formats(laptop(f"compute.dtype={dtype}")))
