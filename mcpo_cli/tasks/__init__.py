"""Tasks and benchmarks: one file each."""

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Problem
from mcpo_cli.tasks.arithmetic import Arithmetic
from mcpo_cli.tasks.base import Benchmark, answer, correct

__all__ = ["Benchmark", "Problem", "answer", "correct", "of"]


def of(spec: RunSpec) -> Benchmark:
    """The benchmark that `spec.task` names."""
    return Arithmetic(spec.task, spec.warmup)
