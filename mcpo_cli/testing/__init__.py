"""The conformance kit: requirements on every method, sampler and task, built in or not, run by `mcpo components check`.

>>> from mcpo_cli.testing import check
>>> from mcpo_cli.methods import get
>>> [outcome.name for outcome in check(get("grpo")) if not outcome.passed]
[]

In your own test suite: `assert all(outcome.passed for outcome in check(MyMethod()))`. `step` and `mini_batch` make the
inputs of the checks, for tests that are specific to your method.
"""

from mcpo_cli.testing.batches import mini_batch, step
from mcpo_cli.testing.conformance import CHECKS, check
from mcpo_cli.testing.outcomes import CheckOutcome
from mcpo_cli.testing.samplers import SAMPLER_CHECKS, check_sampler
from mcpo_cli.testing.tasks import TASK_CHECKS, check_task

__all__ = [
    "CHECKS",
    "SAMPLER_CHECKS",
    "TASK_CHECKS",
    "CheckOutcome",
    "check",
    "check_sampler",
    "check_task",
    "mini_batch",
    "step",
]
