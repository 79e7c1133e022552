"""80/20 (arXiv 2506.01939): only the tokens of highest entropy bear a gradient.

A as in `dapo`; A_t = 0 for tokens whose entropy under the rollout policy, in nats, is below the (1 - share)-quantile
of all tokens of the global step (linear interpolation). A_PGT; the divisors of the loss stay those of all tokens. The
loss is PPO's clipped surrogate.

Defaults: share .2, clip .2/.28, mean over tokens (the paper builds on DAPO; its filter is `dynamic_sampling`). Edge
cases: ties at the threshold all bear. Reduction: share 1 is `dapo` without its filter.

Disagreement: TRL 1.16 takes the quantile of a micro-batch (over all ranks) under the policy of now; ours is the global
step's under the rollout policy, which needs no further pass. Published as an addition to any method; here it is one of
its own. Checked: TRL's code was read, not executed. verl 0.9.1 has none.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from mcpo_cli.methods.base import Method, Need, Signals, State, Step
from mcpo_cli.methods.group_relative import Aggregation, Clipped, Normalized


@dataclass(frozen=True)
class TopEntropy(Clipped, Normalized):
    """DAPO on its forking tokens."""

    name: ClassVar[str] = "top_entropy"
    token_advantages: ClassVar[bool] = True

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in the paper."""
    clip_high: float = dataclasses.field(default=0.28, metadata={"ge": 0.0})
    """The ratio is clipped above at 1 + clip_high."""
    share: float = dataclasses.field(default=0.2, metadata={"gt": 0.0, "le": 1.0})
    """Of the step's tokens that bear a gradient."""

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"entropy"})

    query_weight = Method.query_weight

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        assert step.entropy_PGT is not None
        signals, state = super().signals(step, state)
        ordered_N = step.entropy_PGT[step.mask_PGT].double().sort().values
        # By hand, as torch's quantile takes 16 million numbers at most.
        place, part = divmod((1 - self.share) * (len(ordered_N) - 1), 1)
        pair = ordered_N[int(place) : int(place) + 2]
        threshold = pair[0] + part * (pair[-1] - pair[0])
        chosen_PGT = step.mask_PGT & (step.entropy_PGT.double() >= threshold)
        advantage_PGT = signals.advantage[..., None] * chosen_PGT
        return Signals(advantage_PGT, (advantage_PGT != 0).any(-1)), state
