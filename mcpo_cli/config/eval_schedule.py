"""When a run is evaluated, and on how many held-out problems."""

from collections.abc import Mapping
from types import MappingProxyType

from mcpo_cli.config.schema import RunSpec


def eval_problems(spec: RunSpec) -> int:
    """Number of held-out problems in one evaluation, over all tiers."""
    return sum(spec.task.tier_sizes(spec.eval.problems).values())


def eval_steps(spec: RunSpec, rollouts: Mapping[int, float] = MappingProxyType({})) -> list[int]:
    """The global steps after which the policy is evaluated: 0 (the base policy), every `eval.every` and the last.

    rollouts: step -> all rollouts sampled up to it (`cost/rollouts`). A step that passes a multiple of
    `eval.every_rollouts` is evaluated, too; only the records tell how many rollouts dynamic sampling took.
    """
    steps, gap = spec.train.steps, spec.eval.every_rollouts
    extra_steps = {step for step, total in rollouts.items() if gap and total // gap > rollouts.get(step - 1, 0) // gap}
    return sorted({0, *range(spec.eval.every, steps + 1, spec.eval.every), steps, *extra_steps})
