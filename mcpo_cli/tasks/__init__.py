"""Tasks and benchmarks: one file each."""

from mcpo_cli.benchmarks.arithmetic import Arithmetic
from mcpo_cli.benchmarks.base import Benchmark, Problem, correct
from mcpo_cli.config.schema import RunSpec

__all__ = ["Benchmark", "Problem", "correct", "of"]


def of(spec: RunSpec) -> Benchmark:
    """The benchmark that `spec.task` names."""
    return Arithmetic(spec.task, spec.warmup)
