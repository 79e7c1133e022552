"""Tests that need verl."""

LEFT_OUT = "MCPO_TESTS_LEFT_OUT"
"""An environment variable: installed packages that verl's processes do without, separated by commas."""
LEAN = {LEFT_OUT: "vllm,sklearn"}
"""Environment of whatever does not sample with vLLM.

verl and transformers import these two wherever they are installed, used or not: a third of the 11 seconds of processor
time that each of a run's eight processes needs to start.
"""
AS_ON_GPUS = (
    "++actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=bf16",
    "actor_rollout_ref.model.enable_gradient_checkpointing=true",
)
"""verl's settings that a run on GPUs has beside those of one on a processor, as far as a processor can compute them."""
