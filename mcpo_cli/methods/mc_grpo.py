"""MC-GRPO (arXiv 2601.22582): the median of an odd number of rollouts as baseline, its rollout left out.

A = (r - median r) / scale, A_PG. One rollout whose reward is the median (the first) is the pivot: it bears nothing and
is not counted in the totals of the mini-batch. The loss is PPO's clipped surrogate.

Defaults: clip .2/.2, the suite's aggregation; `train.rollouts` is G + 1 and must be odd (an even one has no middle).
Edge cases: equal rewards give A = 0. Ties: torch's median does not say which rollout it took; all have A = 0, and only
`aggregation=token-mean` could tell which of them does not count.

Disagreement that matters: the released code divides by the median absolute deviation + 1e-3 and multiplies by the
number of rollouts over the number of non-zero advantages. With binary rewards and an odd number the majority equals
the median, so that deviation is 0 always and every advantage is 0 or +-1000. Adam hides the scale; clipping of
gradients then acts at every step. Default `scale=std`, under which W(p) is `grpo`'s; the released one is `scale=mad
rescale=true`. Checked: paper and code were read, not executed. Neither verl nor TRL has it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import Floats, Signals, State, Step, Training
from mcpo_cli.methods.group_relative import Clipped, Normalized

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class McGrpo(Clipped, Normalized):
    """Median-Centred GRPO."""

    name: ClassVar[str] = "mc_grpo"

    scale_by: Literal["std", "mad", "none"] = "std"
    """The divisor: standard deviation, median absolute deviation + 1e-3 (released code), or 1."""
    rescale: bool = False
    """Multiply by the rollouts over those with an advantage (released code)."""

    def contradictions(self, train: Training) -> Iterator[tuple[str, str]]:
        yield from super().contradictions(train)
        if train.rollouts % 2 == 0:
            yield (
                f"train.rollouts={train.rollouts} is even, and method=mc_grpo needs the one rollout in the middle",
                f"train.rollouts={train.rollouts + 1}",
            )

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """sqrt(p(1 - p)), p(1 - p) or 1000 p(1 - p) by `scale_by`, over min(p, 1 - p) with `rescale`."""
        scales = {"std": (p * (1 - p)) ** 0.5, "mad": p * (1 - p) / 1e-3, "none": p * (1 - p)}
        minority = (1 - abs(2 * p - 1)) / 2 if self.rescale else p * 0 + 1
        return scales[self.scale_by] / (minority + (minority == 0))

    def baseline(self, reward_PG: Tensor) -> Tensor:
        return reward_PG.median(-1, keepdim=True).values

    def divisor(self, reward_PG: Tensor, p_P1: Tensor) -> Tensor:
        if self.scale_by == "std":
            return super().divisor(reward_PG, p_P1)
        deviation_PG = (reward_PG - self.baseline(reward_PG)).abs()
        return self.baseline(deviation_PG) + 1e-3 if self.scale_by == "mad" else p_P1 * 0 + 1

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """The pivot of each group does not count."""
        signals, state = super().signals(step, state)
        bears_PG, reward_PG = signals.bears_PG, step.reward_PG.double()
        live_P1 = bears_PG.sum(-1, keepdim=True).clamp(min=1)
        factor_P1 = bears_PG.shape[-1] / live_P1 if self.rescale else live_P1 * 0 + 1
        middle_PG = reward_PG == self.baseline(reward_PG)
        counts_PG = ~(middle_PG & (middle_PG.cumsum(-1) == 1))
        return dataclasses.replace(signals, advantage=signals.advantage * factor_P1, counts_PG=counts_PG), state
