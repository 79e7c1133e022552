"""Methods whose token advantages depend on the entropy of the policy."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import (
    Floats,
    Method,
    Need,
    Report,
    Signals,
    State,
    Step,
    TokenBatch,
    TokenLoss,
)
from mcpo_cli.methods.group_relative import Aggregation, Clipped, Normalized, Standardized

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class EntropyBonus(Clipped, Normalized):
    """Entropy-shaped advantages (arXiv 2506.14758): uncertain tokens get a bonus, at most a part of their advantage.

    A as in `grpo`; A_t = A + min(alpha H_t, |A|/kappa), H_t the entropy in nats under the rollout policy, without a
    gradient. A_PGT. The loss is PPO's clipped surrogate.

    Defaults: alpha .4, kappa 2 (from memory, not verified), clip .2/.28 as in DAPO. Edge cases: A = 0 stays 0, so
    nothing happens in dead groups; with kappa > 1 no sign changes. Reduction: alpha = 0 is `grpo` with this clipping.
    Published as an addition to any method; here it is one of its own. Checked: the paper was read, no code executed.
    Neither verl 0.9.1 nor TRL has it.
    """

    name: ClassVar[str] = "entropy_bonus"
    token_advantages: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"entropy"})

    clip_high: float = dataclasses.field(default=0.28, metadata={"ge": 0.0})
    """The ratio is clipped above at 1 + clip_high."""
    alpha: float = dataclasses.field(default=0.4, metadata={"ge": 0.0})
    """The bonus per nat of entropy."""
    kappa: float = dataclasses.field(default=2.0, metadata={"gt": 1.0})
    """The bonus is at most |A|/kappa."""

    query_weight = Method.query_weight

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        assert step.entropy_PGT is not None
        signals, state = super().signals(step, state)
        A_PG1 = signals.advantage[..., None]
        bonus_PGT = (self.alpha * step.entropy_PGT.double()).minimum(A_PG1.abs() / self.kappa)
        return Signals((A_PG1 + bonus_PGT) * step.mask_PGT, signals.has_gradient_PG), state


@dataclass(frozen=True)
class TopEntropy(Clipped, Normalized):
    """80/20 (arXiv 2506.01939): only the tokens of highest entropy have a gradient.

    A as in `dapo`; A_t = 0 for tokens whose entropy under the rollout policy, in nats, is below the (1 -
    share)-quantile of all tokens of the global step (linear interpolation). A_PGT; the loss still divides
    by all tokens. The loss is PPO's clipped surrogate.

    Defaults: share .2, clip .2/.28, mean over tokens (the paper builds on DAPO; its filter is `dynamic_sampling`).
    Edge cases: ties at the threshold are all kept. Reduction: share 1 is `dapo` without its filter.

    Disagreement: TRL 1.16 takes the quantile of a micro-batch (over all ranks) under the current policy; ours is the
    global step's under the rollout policy, which needs no further pass. Published as an addition to any method; here
    it is one of its own. Checked: TRL's code was read, not executed. verl 0.9.1 has none.
    """

    name: ClassVar[str] = "top_entropy"
    uneven_groups: ClassVar[bool] = False
    token_advantages: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"entropy"})

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in the paper."""
    clip_high: float = dataclasses.field(default=0.28, metadata={"ge": 0.0})
    """The ratio is clipped above at 1 + clip_high."""
    share: float = dataclasses.field(default=0.2, metadata={"gt": 0.0, "le": 1.0})
    """Of the step's tokens that have a gradient."""

    query_weight = Method.query_weight

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        assert step.entropy_PGT is not None
        signals, state = super().signals(step, state)
        ordered_N = step.entropy_PGT[step.mask_PGT].double().sort().values
        # By hand, because torch's quantile takes at most 16 million numbers.
        rank, part = divmod((1 - self.share) * (len(ordered_N) - 1), 1)
        pair = ordered_N[int(rank) : int(rank) + 2]
        threshold = pair[0] + part * (pair[-1] - pair[0])
        chosen_PGT = step.mask_PGT & (step.entropy_PGT.double() >= threshold)
        advantage_PGT = signals.advantage[..., None] * chosen_PGT
        return Signals.of(advantage_PGT), state


@dataclass(frozen=True)
class RlZvp(Clipped, Standardized):
    """RL-ZVP (arXiv 2509.21880): zero-variance groups get token advantages in proportion to the tokens' entropy.

    RL with Zero-Variance Prompts. Groups whose rewards differ: A as in `grpo`. All correct: A_t = alpha H_t. All wrong:
    A_t = -alpha (max_k H_k - H_t), the maximum over the tokens of that response (Eq. 4-5). A_PGT; H in nats, without
    a gradient.

    Defaults: alpha .10 (Table 3; .20 is close, .05 and .30 clearly worse), clip .2/.28 (appendix C), the suite's
    aggregation. `entropy_scaling=false` and `learns_from` are the paper's ablations: A_t = +-alpha, one sign alone.
    Edge cases: an incorrect response of one token gets 0. The paper covers binary rewards only; shaped ones are
    refused. Reduction: alpha = 0 is `grpo`.

    Disagreements: Eq. 6 clips symmetrically and averages over a sequence's tokens, appendix C says .2/.28 and
    "token-level loss" (`aggregation=token-mean`). Algorithm 1 recomputes A under the newest policy at each gradient
    step (`entropy=current`); by default H is the one recorded while sampling. Both are the same in the first gradient
    step. Not verified: no released code was found, the text was read. Neither verl nor TRL has it.
    """

    name: ClassVar[str] = "rl_zvp"
    uneven_groups: ClassVar[bool] = True
    columns: ClassVar[tuple[str, ...]] = ("side",)
    token_advantages: ClassVar[bool] = True
    binary_rewards: ClassVar[bool] = True

    clip_high: float = dataclasses.field(default=0.28, metadata={"ge": 0.0})
    """The ratio is clipped above at 1 + clip_high."""
    alpha: float = dataclasses.field(default=0.1, metadata={"ge": 0.0})
    """Scale of the advantages of zero-variance groups, per nat of entropy."""
    entropy_scaling: bool = True
    """Whether these advantages follow the entropy; false gives alpha to correct and -alpha to incorrect tokens."""
    learns_from: Literal["both", "right", "wrong"] = "both"
    """Which zero-variance groups have an advantage."""
    entropy: Literal["rollout", "current"] = "rollout"
    """Whose entropy it is: of the policy that sampled, or of the current policy at each gradient step (Algorithm 1)."""

    @property
    def uses_dead_groups(self) -> bool:
        return self.alpha > 0

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"entropy", "current_entropy"} if self.entropy == "current" else {"entropy"})

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """sqrt(p(1 - p)): additions at p = 0 and p = 1 do not distinguish correct from incorrect answers."""
        return (p * (1 - p)) ** 0.5

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """The column `side` is 1 in all-correct groups, -1 in all-wrong groups, 0 in groups without an addition."""
        assert step.entropy_PGT is not None
        right_P = (step.p_P == 1) & (self.learns_from != "wrong")
        wrong_P = (step.p_P == 0) & (self.learns_from != "right")
        side_PG = (right_P.double() - wrong_P.double())[:, None].expand_as(step.correct_PG)
        dead_PGT = self.dead(side_PG, step.entropy_PGT, step.mask_PGT)
        advantage_PGT = self.standardized(step.reward_PG)[..., None] * step.mask_PGT + dead_PGT
        has_gradient_PG = (advantage_PGT != 0).any(-1) | ((side_PG != 0) & (self.entropy == "current"))
        return Signals(advantage_PGT, has_gradient_PG, columns={"side": side_PG}), state

    def dead(self, side: Tensor, entropy: Tensor, mask: Tensor) -> Tensor:
        """The advantage of each token in zero-variance groups (Eq. 4-5), float64, 0 elsewhere.

        Args:
            side: a value per sequence (PG or B). entropy, mask: a value per token (PGT or BT).
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

    def has_gradient(self, batch: TokenBatch) -> Tensor:
        return self.current(batch).has_advantage_B

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        return super().token_loss(self.current(batch))

    def report(self, batch: TokenBatch) -> Report:
        return super().report(self.current(batch))
