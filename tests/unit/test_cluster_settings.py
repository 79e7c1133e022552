"""Settings of `cluster` that share a model over GPUs or change results, and LoRA's (`model.lora_rank`) under verl."""

from pathlib import Path

import pytest
import torch

from mcpo_cli import machine
from mcpo_cli.backends.verl import checks, overrides
from mcpo_cli.backends.verl.checkpoint import lora_merged
from mcpo_cli.config import cost
from mcpo_cli.config.load import from_dict, load
from mcpo_cli.config.schema import Model, RunSpec
from mcpo_cli.runs.attempts import Attempt, check_own
from tests.errors import refused

MODEL = "actor_rollout_ref.model"


def paper(*more: str) -> RunSpec:
    return load(["scale=paper", *more])[0]


def table(spec: RunSpec) -> overrides.Table:
    return overrides.table(spec, overrides.planned(spec, Path("/home")))


def test_gpus_that_share_a_sequence_hold_a_part_of_it_each() -> None:
    shared = paper("cluster.sequence_parallel=2", "cluster.max_tokens_per_gpu=11264")
    assert table(shared)["actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size"] == 2
    logits, inputs = 2 * 2 * 151936, 2 * 36 * 4096
    saved = cost.gpu_bytes(paper())["trains"] - cost.gpu_bytes(shared)["trains"]
    assert saved == (24576 - 11264) * (logits + inputs)
    # Four GPUs may share the eight heads of keys and values, and sixteen may have copies of them.
    assert paper("cluster.sequence_parallel=4").cluster.sequence_parallel == 4
    assert paper("cluster.sequence_parallel=16", "cluster.gpus=16").cluster.sequence_parallel == 16


def test_fused_kernels_store_no_logits() -> None:
    fused = paper("cluster.fused_kernels=true")
    assert cost.gpu_bytes(paper())["trains"] - cost.gpu_bytes(fused)["trains"] == 2 * 2 * 24576 * 151936
    rows = table(fused)
    assert rows["actor_rollout_ref.model.use_fused_kernels"] is True
    assert rows["actor_rollout_ref.model.fused_kernel_options.impl_backend"] == "triton"


def test_deterministic_runs_set_all_of_verls_switches_and_draw_whole_rounds() -> None:
    plain, same = paper("method=dapo"), paper("method=dapo", "cluster.deterministic=true")
    rows = table(same)
    assert rows["actor_rollout_ref.actor.fsdp_config.full_determinism"] is True
    assert rows["actor_rollout_ref.rollout.full_determinism"] is True
    # Before a process starts, as Python's hashes and CUDA's libraries need them.
    variables = overrides.environment(same)
    for name, value in (overrides.DETERMINISTIC | overrides.BATCH_INVARIANT).items():
        assert variables[name] == value
        assert rows[f"+ray_kwargs.ray_init.runtime_env.env_vars.{name}"] == value
    assert not overrides.DETERMINISTIC.keys() & overrides.environment(plain).keys()
    # verl's loader submits one prompt for each that was dropped: how many depends on the speed of answers.
    assert [overrides.draws_by_position(spec) for spec in (plain, same)] == [False, True]
    assert not overrides.draws_by_position(paper("cluster.deterministic=true"))
    sizes = [table(spec)["data.gen_batch_size"] for spec in (plain, same)]
    assert sizes == [1, plain.train.prompts]
    assert rows["algorithm.filter_groups.enable"] is False


def test_eager_mode_is_vllms() -> None:
    assert table(paper("cluster.eager=true"))["actor_rollout_ref.rollout.enforce_eager"] is True


def test_a_run_waits_for_the_memory_of_its_killed_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not for the memory of others, nor for longer than a killed attempt takes to end."""
    spec, slept = paper("model=qwen3-8b"), list[float]()
    full = machine.Gpu("H100", 80 * machine.GIB, 10 * machine.GIB)
    empty = machine.Gpu("H100", 80 * machine.GIB, 79 * machine.GIB)
    monkeypatch.setattr(checks.time, "sleep", slept.append)
    monkeypatch.setattr(checks.time, "monotonic", lambda: sum(slept))
    monkeypatch.setattr(checks.machine, "gpus", lambda: [empty if len(slept) >= 3 else full])
    monkeypatch.setattr(checks.processes, "marked", lambda name: ["a process"] * name.endswith(spec.run_id))
    assert checks._settled(spec) == [empty]
    assert len(slept) == 3
    slept.clear()
    monkeypatch.setattr(checks.machine, "gpus", lambda: [full])
    assert checks._settled(spec) == [full]
    assert checks.LEAVING_SECONDS <= sum(slept) <= checks.LEAVING_SECONDS + 1
    slept.clear()
    monkeypatch.setattr(checks.processes, "marked", lambda name: [])
    assert checks._settled(spec) == [full]
    assert not slept


def test_an_attempt_with_other_numerics_is_no_attempt_at_this_run(tmp_path: Path) -> None:
    plain, fused = paper(), paper("cluster.fused_kernels=true")
    folder = tmp_path / plain.run_id
    folder.mkdir()
    Attempt(folder, fused, 0)
    check_own(folder, fused)
    with refused("run_failed", "cluster.fused_kernels=True", "cluster.fused_kernels=False"):
        check_own(folder, plain)


def test_runs_with_and_without_lora_share_the_base_policy() -> None:
    (plain,), (lora,) = load(["scale=verl-cpu"]), load(["scale=verl-cpu", "model.lora_rank=4", "model.lora_alpha=8"])
    assert lora.base_id == plain.base_id


def test_what_verl_is_told_of_lora() -> None:
    rows = table(paper("model.lora_rank=16", "model.lora_alpha=32"))
    assert rows[f"{MODEL}.lora_rank"] == 16
    assert rows[f"{MODEL}.lora_alpha"] == 32
    assert rows[f"{MODEL}.target_modules"] == "all-linear"
    # vLLM reads the model itself and gets the matrices, which stay separate.
    assert rows["actor_rollout_ref.rollout.load_format"] == "auto"
    assert rows[f"{MODEL}.lora.merge"] is False


def test_memory_and_disk_hold_gradients_and_moments_of_the_matrices_alone() -> None:
    """Qwen3-8B, by hand: 36 blocks; queries 4096, keys and values 1024, feed-forward 12288."""
    layers = [(4096, 4096), (4096, 1024), (4096, 1024), (4096, 4096), (4096, 12288), (4096, 12288), (12288, 4096)]
    matrices = 36 * 16 * sum(inputs + outputs for inputs, outputs in layers)
    full, spec = paper(), paper("model.lora_rank=16")
    weights = cost.weights(full).count
    assert cost.weights(spec).trained == matrices == 43_646_976
    assert cost.weights(full).trained == weights
    assert cost.weights(spec).checkpoint == 4 * weights + 12 * matrices
    assert (
        cost.weights(paper("model.lora_rank=16", "method.anchor=previous_step")).checkpoint
        == 4 * weights + 16 * matrices
    )
    saved = cost.gpu_bytes(full)["trains"] - cost.gpu_bytes(spec)["trains"]
    assert saved == (12 * weights - 16 * matrices) / 8
    # The rollout engine has the matrices in addition to the weights.
    more = cost.gpu_bytes(spec)["samples"] - cost.gpu_bytes(full)["samples"]
    assert more == pytest.approx(2 * matrices / spec.cluster.tensor_parallel / spec.cluster.gpu_memory)
    # Five forward passes of training become four: most weights need no gradient.
    assert cost.operations(spec, 0, 100) == 0.8 * cost.operations(full, 0, 100)
    assert cost.operations(spec, 100, 0) == cost.operations(full, 100, 0)


def test_merged_weights_by_hand() -> None:
    layer = "base_model.model.model.layers.0.self_attn.q_proj"
    matrices = {".lora_A.default.weight": [[1.0, 2.0]], ".lora_B.default.weight": [[3.0], [0.0], [-1.0]]}
    weights = {layer + ending: torch.tensor(values) for ending, values in matrices.items()}
    weights[f"{layer}.base_layer.weight"] = torch.ones(3, 2).bfloat16()
    weights["base_model.model.model.norm.weight"] = torch.tensor([5.0])
    merged = lora_merged(weights, Model(lora_rank=1, lora_alpha=2))
    assert merged.keys() == {"model.layers.0.self_attn.q_proj.weight", "model.norm.weight"}
    assert merged["model.layers.0.self_attn.q_proj.weight"].tolist() == [[7.0, 13.0], [1.0, 1.0], [-1.0, -3.0]]
    assert merged["model.norm.weight"].tolist() == [5.0]
    # A small update is not rounded away.
    small = {name: value * 1e-2 if "lora_" in name else value for name, value in weights.items()}
    updated = lora_merged(small, Model(lora_rank=1, lora_alpha=2))["model.layers.0.self_attn.q_proj.weight"]
    assert updated[0].tolist() == pytest.approx([1.0006, 1.0012])
    assert lora_merged(weights, Model()) is weights


def test_records_with_the_former_name_of_a_correction_are_read_where_it_is_null() -> None:
    recorded = paper().to_dict()
    recorded["cluster"]["rollout_correction"] = None
    assert from_dict(recorded) == paper()
    recorded["cluster"]["rollout_correction"] = 2.0
    with refused("unknown_key", "rollout_correction"):
        from_dict(recorded)
