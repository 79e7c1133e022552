"""RL-ZVP (arXiv 2509.21880): zero-variance groups get token advantages in proportion to the tokens' entropy.

Groups whose rewards differ: A as in `grpo`. All right: A_t = alpha H_t. All wrong: A_t = -alpha (max_k H_k - H_t), the
maximum over the tokens of that response (Eq. 4-5). A_PGT; H in nats under the rollout policy, without a gradient.

Defaults: alpha .10 (Table 3; .20 is close, .05 and .30 clearly worse), clip .2/.28 (appendix C), the suite's
aggregation. `entropy_scaling=false` and `learns_from` are the paper's ablations: A_t = +-alpha, one sign alone. Edge
cases: a wrong response of one token gets 0. The paper covers binary rewards only; shaped ones are refused. Reduction:
alpha = 0 is `grpo`.

Disagreements: Eq. 6 clips symmetrically and averages over a sequence's tokens, appendix C says .2/.28 and "token-level
loss" (`aggregation=token-mean`). Algorithm 1 recomputes A under the newest policy at each gradient step; here H is the
one recorded while sampling. Not verified: no released code was found, the text was read. Neither verl nor TRL has it.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from mcpo_cli.methods.base import Floats, Need, Signals, State, Step
from mcpo_cli.methods.group_relative import Clipped, Standardized


@dataclass(frozen=True)
class RlZvp(Clipped, Standardized):
    """RL with Zero-Variance Prompts."""

    name: ClassVar[str] = "rl_zvp"
    token_advantages: ClassVar[bool] = True
    binary_rewards: ClassVar[bool] = True

    clip_high: float = dataclasses.field(default=0.28, metadata={"ge": 0.0})
    """The ratio is clipped above at 1 + clip_high."""
    alpha: float = dataclasses.field(default=0.1, metadata={"ge": 0.0})
    """Scale of the advantages of zero-variance groups, a nat of entropy."""
    entropy_scaling: bool = True
    """Whether these advantages follow the entropy; false gives alpha to right and -alpha to wrong tokens."""
    learns_from: Literal["both", "right", "wrong"] = "both"
    """Which zero-variance groups have an advantage."""

    @property
    def uses_dead_groups(self) -> bool:
        return self.alpha > 0

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"entropy"})

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """sqrt(p(1 - p)), as what is added at p = 0 and p = 1 tells no right answer from a wrong one."""
        return (p * (1 - p)) ** 0.5

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        assert step.entropy_PGT is not None
        mask_PGT, H_PGT = step.mask_PGT, step.entropy_PGT.double()
        right_P11, wrong_P11 = (step.p_P == 1)[:, None, None], (step.p_P == 0)[:, None, None]
        up_PGT, down_PGT = H_PGT, H_PGT.where(mask_PGT, -1.0).amax(-1, keepdim=True) - H_PGT
        if not self.entropy_scaling:
            up_PGT = down_PGT = H_PGT * 0 + 1
        dead_PGT = up_PGT * right_P11 * (self.learns_from != "wrong") - down_PGT * wrong_P11 * (
            self.learns_from != "right"
        )
        mixed_PG1 = self.standardized(step.reward_PG)[..., None]
        advantage_PGT = (mixed_PG1 + self.alpha * dead_PGT) * mask_PGT
        return Signals(advantage_PGT, (advantage_PGT != 0).any(-1)), state
