"""Tests that need verl."""

LEFT_OUT = "MCPO_TESTS_LEFT_OUT"
"""An environment variable: installed packages that verl's processes do without, separated by commas."""
LEAN = {LEFT_OUT: "vllm,sklearn"}
"""Environment of whatever does not sample with vLLM.

verl and transformers import these two wherever they are installed, used or not: a third of the 11 seconds of processor
time that each of a run's eight processes needs to start.
"""
