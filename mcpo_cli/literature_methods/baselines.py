"""Methods that compare the rewards of a group with something other than their mean."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import Floats, Method, Need, Signals, State, Step, TokenBatch
from mcpo_cli.methods.group_relative import Clipped, GroupRelative, Normalized
from mcpo_cli.methods.settings import TrainSettings

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Rloo(Clipped, GroupRelative):
    """RLOO (arXiv 2402.14740): each rollout is compared with the mean of the others of its group.

    REINFORCE Leave-One-Out. A = r - mean of the other rewards = (r - mean r) G/(G-1); A_PG, rewards PG. The loss is
    PPO's clipped surrogate.

    Defaults: clip .2/.2 and the suite's aggregation, as for `grpo`. Edge cases: groups whose rewards are equal have A
    = 0. Reduction: `dr_grpo`'s advantage times G/(G-1), so the two differ by the step size only.

    Disagreement: verl 0.9.1 (`rloo`, `rloo_vectorized`) keeps a ratio for each token; TRL 1.16's `RLOOTrainer` has
    one ratio of the whole sequence, e^(sum of d), clipped, and the mean over sequences. Default `ratio=token`;
    `ratio=sequence-sum` is TRL's. Checked: advantages equal verl's functions; `sequence-sum` was read in TRL's code,
    not executed.
    """

    name: ClassVar[str] = "rloo"

    ratio: Literal["token", "sequence-sum"] = "token"
    """A ratio for each token (verl), or one for the sequence, the product of its tokens' (TRL)."""

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """p(1 - p) G/(G-1)."""
        return p * (1 - p) / (1 - 1 / rollouts)

    def divisor(self, reward_PG: Tensor, p_P1: Tensor) -> Tensor:
        return p_P1 * 0 + (1 - 1 / reward_PG.shape[-1])

    def log_ratio(self, batch: TokenBatch) -> Tensor:
        """The log ratio of each token, or their sum, the same for every token of a sequence."""
        if self.ratio == "token":
            return super().log_ratio(batch)
        return (batch.log_ratio_BT * batch.mask_BT).sum(-1, keepdim=True).expand_as(batch.log_ratio_BT)


@dataclass(frozen=True)
class Opo(Clipped, GroupRelative):
    """OPO (arXiv 2505.23585): the baseline of least variance, which weighs each reward by its response's length.

    On-Policy RL with the optimal baseline. A = r - sum of |y| r / sum of |y| over the group; A_PG. The loss is PPO's
    clipped surrogate; the paper trains on-policy, where no ratio is clipped.

    Defaults: clip .2/.2 and the suite's aggregation. Edge cases: equal rewards give A = 0. A baseline is a constant
    of the group: W(p) = p(1 - p), as for `dr_grpo`. Reduction: equal lengths give r - mean r. No disagreement:
    advantages equal verl 0.9.1's function; TRL has none.
    """

    name: ClassVar[str] = "opo"

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """A = r - mean r, minus its length-weighted mean: the distance of this baseline from the mean."""
        signals, state = super().signals(step, state)
        centred_PG, length_PG = signals.advantage, step.length_PG
        shift_P1 = (centred_PG * length_PG).sum(-1, keepdim=True) / length_PG.sum(-1, keepdim=True)
        advantage_PG = centred_PG - shift_P1
        return dataclasses.replace(signals, advantage=advantage_PG, has_gradient_PG=advantage_PG != 0), state


@dataclass(frozen=True)
class Remax(Clipped):
    """ReMax (arXiv 2310.10505): the reward of the policy's own greedy response as baseline.

    REINFORCE with argmax. A = r - r(greedy response to the same prompt); A_PG. The greedy response is one more rollout
    a prompt: its tokens are part of the cost, and it is not trained on. The loss is PPO's clipped surrogate, as in
    verl; the paper has one rollout a prompt and, on-policy, no ratio, which is the same at the first gradient step.

    Defaults: clip .2/.2 and the suite's aggregation, as for `grpo`. Edge cases: a group whose rewards all equal
    its greedy response's has A = 0; where all are right and the greedy response is wrong, all have A = 1, so a filter
    of such groups would leave a part of the method out. The reward of the greedy response has the penalty for long
    responses, too. A baseline is a constant of the group: W(p) = p(1 - p), as for `dr_grpo`.

    Disagreement: the paper subtracts a KL to the base policy from each token's reward, which neither verl 0.9.1 without
    `use_kl_in_reward` nor this does. Checked: advantages equal verl's function `remax` (executed). TRL has none.
    backend=verl refuses it: its trainer samples no greedy response.
    """

    name: ClassVar[str] = "remax"
    uneven_groups: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"greedy_reward"})
    uses_dead_groups: ClassVar[bool] = True

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """p(1 - p)."""
        return p * (1 - p)

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """Rewards minus the reward of the greedy response."""
        assert step.greedy_reward_P is not None
        return Signals.of(step.reward_PG.double() - step.greedy_reward_P.double()[:, None]), state


@dataclass(frozen=True)
class Otb(Clipped, GroupRelative):
    """OTB (arXiv 2602.07078): at every token a baseline of its own, which weighs rewards by how uncertain a path was.

    Optimal Token Baseline. W_t = sum over j <= t of 1 - 2 pi_j + sum of pi^2 over the vocabulary at j, which stands
    for the squared gradient of log pi; A_t = r - B_t with B_t = sum of r W_t / sum of W_t over the rollouts of the
    group that have a token t; A_PGT. The loss is PPO's clipped surrogate.

    Defaults: clip .2/.2 and the suite's aggregation. Edge cases: equal rewards give A = 0; where one rollout alone is
    left at t, its B_t is 0 (verl's `handle_zero_tail`), so that it has A = r there and not 0. W(p) depends on the
    probabilities: no curve.

    Disagreements: in verl groups of equal rewards have A = r in that tail; it adds 1e-8 to the divisor, we take the
    mean of the group where all tokens so far were certain. Its weights under rollout correction are left out. Checked:
    advantages of mixed groups equal verl 0.9.1's function `optimal_token_baseline` (executed). TRL has none.
    """

    name: ClassVar[str] = "otb"
    needs: ClassVar[frozenset[Need]] = frozenset({"logp", "collision"})
    token_advantages: ClassVar[bool] = True

    query_weight = Method.query_weight

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """A = r - mean r, minus its weighted mean: the distance of a token's baseline from the group's mean."""
        assert step.logp_PGT is not None
        assert step.collision_PGT is not None
        signals, state = super().signals(step, state)
        mask_PGT, centred_PG1 = step.mask_PGT, signals.advantage[..., None]
        energy_PGT = 1 - 2 * step.logp_PGT.double().exp() + step.collision_PGT.double()
        path_PGT = (energy_PGT * mask_PGT).cumsum(-1) * mask_PGT
        shift_P1T = (centred_PG1 * path_PGT).sum(1, keepdim=True) / path_PGT.sum(1, keepdim=True).clamp(min=1e-12)
        advantage_PGT = centred_PG1 - shift_P1T
        alone_P1T = mask_PGT.sum(1, keepdim=True) == 1
        advantage_PGT = step.reward_PG.double()[..., None].where(alone_P1T, advantage_PGT)
        live_P11 = (centred_PG1 != 0).any(1, keepdim=True)
        return Signals.of(advantage_PGT * mask_PGT * live_P11), state


@dataclass(frozen=True)
class Qae(Clipped, Normalized):
    """QAE (arXiv 2509.22611): the K-quantile of a group's rewards as baseline instead of their mean.

    Quantile Advantage Estimation. A = (r - Q_K) / std r, Q_K the K-quantile; A_PG. Binary rewards: the baseline is 0
    for p <= 1 - K, else 1, so correct answers of hard prompts or incorrect ones of easy prompts count, and the others
    have A = 0. The loss is PPO's clipped surrogate.

    Defaults: K = .4 (.6 against a collapse of entropy), clip .2/.28 (paper). Edge cases: equal rewards give A = 0. A
    baseline is a constant of the group, so W(p) is `grpo`'s; what differs is the variance, and which rollouts have a
    gradient.

    Disagreement: the released code calls `torch.quantile`, which interpolates: [1,1,0,0] at K = .4 has the baseline
    .2, and the paper's two regimes do not hold near p = 1 - K. Default `interpolation=lower`, the inverse
    distribution function that the paper defines; `linear` is the code's. Checked: paper and code were read, not
    executed. Neither verl nor TRL has it.
    """

    name: ClassVar[str] = "qae"

    clip_high: float = dataclasses.field(default=0.28, metadata={"ge": 0.0})
    """The ratio is clipped above at 1 + clip_high."""
    quantile: float = dataclasses.field(default=0.4, metadata={"gt": 0.0, "lt": 1.0})
    """K: the share of a group's rewards that are at most the baseline."""
    interpolation: Literal["lower", "linear"] = "lower"
    """Between two rewards: the inverse distribution function (paper), or linear (released code)."""

    def baseline(self, reward_PG: Tensor) -> Tensor:
        """Q_K: the smallest reward that at least a share K of the group does not exceed."""
        if self.interpolation == "linear":
            return reward_PG.quantile(self.quantile, dim=-1, keepdim=True)
        ordered_PG, G = reward_PG.sort(-1).values, reward_PG.shape[-1]
        # Rounded to decimals, so that .6 x 5 is 3 despite floating-point error.
        rank = math.ceil(round(self.quantile * G, 9)) - 1
        return ordered_PG[:, rank : rank + 1]


@dataclass(frozen=True)
class McGrpo(Clipped, Normalized):
    """MC-GRPO (arXiv 2601.22582): the median of an odd number of rollouts as baseline, its rollout left out.

    Median-Centred GRPO. A = (r - median r) / scale, A_PG. One rollout whose reward is the median (the first) is the
    pivot: it has no gradient and is not counted in the totals of the mini-batch. The loss is PPO's clipped surrogate.

    Defaults: clip .2/.2, the suite's aggregation; `train.rollouts` is G + 1 and must be odd (an even one has no
    middle). Edge cases: equal rewards give A = 0. Ties: torch's median does not say which rollout it took; all have A
    = 0, and only `aggregation=token-mean` could tell which of them does not count.

    Disagreement that matters: the released code divides by the median absolute deviation + 1e-3 and multiplies by the
    number of rollouts over the number of non-zero advantages. With binary rewards and an odd number the majority
    equals the median, so that deviation is 0 always and every advantage is 0 or +-1000. Adam hides the scale;
    clipping of gradients then acts at every step. Default `scale=std`, under which W(p) is `grpo`'s; the released one
    is `scale=mad rescale=true`. Checked: paper and code were read, not executed. Neither verl nor TRL has it.
    """

    name: ClassVar[str] = "mc_grpo"
    uneven_groups: ClassVar[bool] = False

    scale_by: Literal["std", "mad", "none"] = "std"
    """The divisor: standard deviation, median absolute deviation + 1e-3 (released code), or 1."""
    rescale: bool = False
    """Multiply by the rollouts over those with an advantage (released code)."""

    def contradictions(self, train: TrainSettings) -> Iterator[tuple[str, str]]:
        yield from super().contradictions(train)
        if train.rollouts % 2 == 0:
            yield (
                f"train.rollouts={train.rollouts} is even; method=mc_grpo needs an odd number, for a median",
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
        has_gradient_PG, reward_PG = signals.has_gradient_PG, step.reward_PG.double()
        live_P1 = has_gradient_PG.sum(-1, keepdim=True).clamp(min=1)
        factor_P1 = has_gradient_PG.shape[-1] / live_P1 if self.rescale else live_P1 * 0 + 1
        middle_PG = reward_PG == self.baseline(reward_PG)
        counts_PG = ~(middle_PG & (middle_PG.cumsum(-1) == 1))
        return dataclasses.replace(signals, advantage=signals.advantage * factor_P1, counts_PG=counts_PG), state
