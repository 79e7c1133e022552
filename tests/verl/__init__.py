"""Tests that need verl."""

LEFT_OUT = "MCPO_TESTS_LEFT_OUT"
"""An environment variable: installed packages to hide from verl's processes, separated by commas."""
LEAN = {LEFT_OUT: "vllm,sklearn"}
"""Environment of processes that do not sample with vLLM.

verl and transformers import these two packages if they are installed, even if unused: a third of the 11 seconds of CPU
time that each of a run's eight processes needs to start.
"""
AS_ON_GPUS = (
    "++actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=bf16",
    "actor_rollout_ref.model.enable_gradient_checkpointing=true",
)
"""verl's settings on GPUs that differ from those on a CPU, as far as a CPU can compute them."""
