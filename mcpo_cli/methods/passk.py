"""Pass@k training (arXiv 2508.10751): the analytic advantage of pass@k, from all subsets of k rollouts at once.

c right of G: rho = 1 - C(G-c, k)/C(G, k), s = sqrt(rho (1 - rho)); right A = (1 - rho)/s, wrong A = (1 - rho -
C(G-c-1, k-1)/C(G-1, k-1))/s; A_PG. The loss is PPO's clipped surrogate.

Defaults: k = 4, clip .2/.2, the suite's aggregation. Edge cases: s = 0 gives A = 0, so prompts with p > 1 - k/G bear
nothing: the opposite of MCPO's weight. With `dynamic_sampling` such groups pass the filter and train nothing. Binary
rewards only; shaped ones are refused. Reduction: k = 1 is `grpo` with `ddof=0`.

Disagreement: verl 0.9.1's `grpo_passk` is another paper's method, the best of the group against the second best.
Checked: equal to a transcription of the authors' function (executed). TRL has none.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from mcpo_cli.methods.base import Floats, Signals, State, Step, Training
from mcpo_cli.methods.group_relative import Clipped


def none_of(p: Floats, k: int, rollouts: float, given: int = 0) -> Floats:
    """The chance that k rollouts, drawn of G - given of which G(1 - p) - given are wrong, are all wrong."""
    chance = p * 0 + 1.0
    for i in range(given, k + given):
        left = 1 - p - i / rollouts
        chance = chance * (left + abs(left)) / 2 / (1 - i / rollouts)
    return chance


@dataclass(frozen=True)
class PassK(Clipped):
    """Pass@k training by the analytic advantage."""

    name: ClassVar[str] = "passk"
    binary_rewards: ClassVar[bool] = True

    k: int = dataclasses.field(default=4, metadata={"ge": 1})
    """Samples of which one has to be right; at most the rollouts of a prompt."""

    def contradictions(self, train: Training) -> Iterator[tuple[str, str]]:
        yield from super().contradictions(train)
        if self.k > train.rollouts:
            yield f"method.k={self.k} is more than train.rollouts={train.rollouts}", f"method.k={train.rollouts}"

    def pair(self, p: Floats, rollouts: float) -> tuple[Floats, Floats]:
        """Advantages of right and wrong rollouts at accuracy p; both 0 where pass@k is certain, or 0."""
        fails = none_of(p, self.k, rollouts)
        s = (fails * (1 - fails)) ** 0.5
        # The product of a chance that is 0 may be off by rounding; its root is what is compared here.
        live, divisor = s > 1e-6, s + (s <= 1e-6)
        others_fail = none_of(p, self.k - 1, rollouts, given=1)
        return fails / divisor * live, (fails - others_fail) / divisor * live

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """p(1 - p) times the difference of both advantages; 0 once fewer than k rollouts are wrong."""
        right, wrong = self.pair(p, rollouts)
        return p * (1 - p) * (right - wrong)

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        right_P1, wrong_P1 = self.pair(step.p_P[:, None], step.correct_PG.shape[-1])
        advantage_PG = right_P1 * step.correct_PG + wrong_P1 * ~step.correct_PG.bool()
        return Signals(advantage_PG, advantage_PG != 0), state
