"""RL-ZVP (arXiv 2509.21880): zero-variance groups get token advantages in proportion to the tokens' entropy.

Groups whose rewards differ: A as in `grpo`. All right: A_t = alpha H_t. All wrong: A_t = -alpha (max_k H_k - H_t), the
maximum over the tokens of that response (Eq. 4-5). A_PGT; H in nats, without a gradient.

Defaults: alpha .10 (Table 3; .20 is close, .05 and .30 clearly worse), clip .2/.28 (appendix C), the suite's
aggregation. `entropy_scaling=false` and `learns_from` are the paper's ablations: A_t = +-alpha, one sign alone. Edge
cases: a wrong response of one token gets 0. The paper covers binary rewards only; shaped ones are refused. Reduction:
alpha = 0 is `grpo`.

Disagreements: Eq. 6 clips symmetrically and averages over a sequence's tokens, appendix C says .2/.28 and "token-level
loss" (`aggregation=token-mean`). Algorithm 1 recomputes A under the newest policy at each gradient step
(`entropy=current`); by default H is the one recorded while sampling. Both are the same in the first gradient step. Not
verified: no released code was found, the text was read. Neither verl nor TRL has it.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import Floats, Need, Report, Signals, State, Step, TokenBatch, TokenLoss
from mcpo_cli.methods.group_relative import Clipped, Standardized

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RlZvp(Clipped, Standardized):
    """RL with Zero-Variance Prompts."""

    name: ClassVar[str] = "rl_zvp"
    columns: ClassVar[tuple[str, ...]] = ("side",)
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
    entropy: Literal["rollout", "current"] = "rollout"
    """Whose entropy it is: the policy's that sampled, or at each gradient step the policy's of now (Algorithm 1)."""

    @property
    def uses_dead_groups(self) -> bool:
        return self.alpha > 0

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"entropy", "current_entropy"} if self.entropy == "current" else {"entropy"})

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """sqrt(p(1 - p)), as what is added at p = 0 and p = 1 tells no right answer from a wrong one."""
        return (p * (1 - p)) ** 0.5

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """The column `side` is 1 in groups that are all right, -1 in those all wrong, 0 where nothing is added."""
        assert step.entropy_PGT is not None
        right_P = (step.p_P == 1) & (self.learns_from != "wrong")
        wrong_P = (step.p_P == 0) & (self.learns_from != "right")
        side_PG = (right_P.double() - wrong_P.double())[:, None].expand_as(step.correct_PG)
        dead_PGT = self.dead(side_PG, step.entropy_PGT, step.mask_PGT)
        advantage_PGT = self.standardized(step.reward_PG)[..., None] * step.mask_PGT + dead_PGT
        bears_PG = (advantage_PGT != 0).any(-1) | ((side_PG != 0) & (self.entropy == "current"))
        return Signals(advantage_PGT, bears_PG, columns={"side": side_PG}), state

    def dead(self, side: Tensor, entropy: Tensor, mask: Tensor) -> Tensor:
        """The advantage of each token in zero-variance groups (Eq. 4-5), float64, 0 elsewhere.

        Args:
            side: of sequences (PG or B); entropy, mask: of their tokens (PGT or BT).
        """
        up = entropy.double()
        down = up.where(mask, -1.0).amax(-1, keepdim=True) - up
        if not self.entropy_scaling:
            up = down = up * 0 + 1
        side = side[..., None]
        return self.alpha * (up * (side > 0) - down * (side < 0)) * mask

    def current(self, batch: TokenBatch) -> TokenBatch:
        """`batch` with the advantages that the option `entropy` asks for."""
        if self.entropy == "rollout":
            return batch
        assert batch.entropy_BT is not None
        side_B = batch.columns["side"]
        dead_BT = self.dead(side_B, batch.entropy_BT, batch.mask_BT).to(batch.advantage_BT.dtype)
        return batch.replace(advantage_BT=dead_BT.where(side_B[:, None] != 0, batch.advantage_BT))

    def bears(self, batch: TokenBatch) -> Tensor:
        return super().bears(self.current(batch))

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        return super().token_loss(self.current(batch))

    def report(self, batch: TokenBatch) -> Report:
        return super().report(self.current(batch))
