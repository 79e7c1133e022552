"""Settings of `cluster` that share a model over GPUs or change results: contradictions, and run ids."""

from pathlib import Path

from mcpo_cli.backends.verl import overrides
from mcpo_cli.config import space
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.attempts import Attempt, check_own
from tests.errors import refused


def paper(*more: str) -> RunSpec:
    return load(["scale=paper", *more])[0]


def table(spec: RunSpec) -> overrides.Table:
    return overrides.table(spec, overrides.planned(spec, Path("/home")))


def test_gpus_that_share_a_sequence_hold_a_part_of_it_each() -> None:
    shared = paper("cluster.sequence_parallel=2", "cluster.max_tokens_per_gpu=11264")
    assert table(shared)["actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size"] == 2
    logits, inputs = 2 * 2 * 151936, 2 * 36 * 4096
    saved = space.gpu_bytes(paper())["trains"] - space.gpu_bytes(shared)["trains"]
    assert saved == (24576 - 11264) * (logits + inputs)
    # Four GPUs may share the eight heads of keys and values, and sixteen may have copies of them.
    assert paper("cluster.sequence_parallel=4").cluster.sequence_parallel == 4
    assert paper("cluster.sequence_parallel=16", "cluster.gpus=16").cluster.sequence_parallel == 16


def test_fused_kernels_store_no_logits() -> None:
    fused = paper("cluster.fused_kernels=true")
    assert space.gpu_bytes(paper())["trains"] - space.gpu_bytes(fused)["trains"] == 2 * 2 * 24576 * 151936
    rows = table(fused)
    assert rows["actor_rollout_ref.model.use_fused_kernels"] is True
    assert rows["actor_rollout_ref.model.fused_kernel_options.impl_backend"] == "triton"


def test_what_changes_results_names_another_run_and_nothing_else_does() -> None:
    plain = paper()
    assert paper("cluster.sequence_parallel=2").run_id == plain.run_id
    assert paper("cluster.loggers=[wandb,tensorboard]").run_id == plain.run_id
    assert paper("cluster.fused_kernels=true").run_id != plain.run_id
    # Runs that were recorded before the setting existed keep their ids.
    assert "cluster" not in plain.identity()
    assert paper("cluster.fused_kernels=true").identity()["cluster"] == {"fused_kernels": True}
    assert paper("cluster.rollout_correction=2").identity()["cluster"] == {"rollout_correction": 2.0}
    assert paper("cluster.rollout_correction=null").run_id == plain.run_id


def test_an_attempt_with_other_numerics_is_no_attempt_at_this_run(tmp_path: Path) -> None:
    plain, fused = paper(), paper("cluster.fused_kernels=true")
    folder = tmp_path / plain.run_id
    folder.mkdir()
    Attempt(folder, fused, 0)
    check_own(folder, fused)
    with refused("run_failed", "cluster.fused_kernels=True", "cluster.fused_kernels=False"):
        check_own(folder, plain)
