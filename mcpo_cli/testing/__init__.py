"""The conformance kit: what every method must satisfy, whoever wrote it. `mcpo method check NAME` runs it.

>>> from mcpo_cli.testing import check
>>> from mcpo_cli.methods import get
>>> [outcome.name for outcome in check(get("grpo")) if not outcome.passed]
[]

In a test suite of your own: `assert all(outcome.passed for outcome in check(MyMethod()))`. `step` and `mini_batch` make
what the checks use, for tests of what is particular to your method.
"""

from mcpo_cli.testing.batches import mini_batch, step
from mcpo_cli.testing.conformance import CHECKS, Outcome, check

__all__ = ["CHECKS", "Outcome", "check", "mini_batch", "step"]
