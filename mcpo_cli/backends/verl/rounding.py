"""How much of the change of log-probabilities over a gradient step is rounding to bfloat16, under verl.

The local engine compares with a pass in float32 (`backends/local/rounding.py`), which flash attention does not compute.
Here the weights are also put half-way between those before and after the step. With l(0), l(1/2) and l(1) for the
log-probabilities of the same sequences, packed alike, the second difference l(1) - 2 l(1/2) + l(0) has no part of what
the step changed, as far as that is linear in the step. Roundings of the three are independent: each has its variance
s^2, the second difference 6 s^2, and the change l(1) - l(0) has 2 s^2 from them. It is measured once per run, over its
first gradient step, for the price of two passes without gradients.
"""

import math
from functools import partial
from typing import Any

from torch import Tensor

from mcpo_cli.backends.verl import engine, queue

BEFORE = "before_the_step"
"""The name under which ranks keep the weights before the step."""


class Rounding:
    """Begins before a gradient step of verl's `trainer` on the sequences of `batch`; `over_step` ends after it."""

    def __init__(self, trainer: Any, batch: Any) -> None:
        self._trainer, self._batch = trainer, batch
        trainer.on_each_rank(partial(engine.remember, BEFORE))
        self._before = queue.old_log_probs(batch.keys)

    def over_step(self) -> dict[str, float]:
        """See `rounding_and_drift`; the weights are afterwards those that the step has left."""
        after, on_each_rank = self._log_probs(), self._trainer.on_each_rank
        on_each_rank(partial(engine.go_half_way, BEFORE))
        half_way = self._log_probs()
        on_each_rank(partial(engine.return_from_half_way, BEFORE))
        return rounding_and_drift(self._before, half_way, after)

    def _log_probs(self) -> Tensor:
        chosen = self._batch.select_keys(self._batch.keys)
        chosen.extra_info = engine.log_prob_pass(entropy=False)
        self._trainer.log_probs(chosen)
        return queue.newest_log_probs(chosen.keys).values()


def rounding_and_drift(before: Tensor, half_way: Tensor, after: Tensor) -> dict[str, float]:
    """Root mean squares over tokens, nats, of the parts of the change from `before` to `after`: log-probabilities.

    `sanity/rounding_after_step`: of rounding. `sanity/drift_after_step`: of the policy's own change, 0 if the rounding
    is the larger part of what was seen.
    """
    before, half_way, after = before.double(), half_way.double(), after.double()
    rounding = float((after - 2 * half_way + before).square().mean()) / 3
    change = float((after - before).square().mean())
    return {
        "sanity/rounding_after_step": math.sqrt(rounding),
        "sanity/drift_after_step": math.sqrt(max(change - rounding, 0.0)),
    }
