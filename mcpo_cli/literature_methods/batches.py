"""Methods that normalise rewards over the whole batch of a global step."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import Method, Need, Signals, State, Step, TokenBatch
from mcpo_cli.methods.group_relative import EQUAL, Aggregation, Clipped, GroupRelative, Standardized, whitened

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LitePpo(Clipped, Standardized, GroupRelative):
    """Lite PPO (arXiv 2508.08221): the group's mean as baseline, the batch's deviation as scale, token mean.

    A = (r - mean r of the group) / s, with s the standard deviation of all raw rewards of the global step; A_PG. The
    loss is PPO's clipped surrogate, averaged over tokens.

    Defaults: clip .2/.2, mean over tokens (the paper's two techniques). Edge cases: s = 0 gives A = 0; a group whose
    rewards are equal has A = 0. Disagreement: TRL 1.16 (`scale_rewards=batch`) takes the sample deviation, `ddof=1`;
    default 0 as everywhere here. W(p) depends on the batch: no curve. Checked: the paper's text and TRL's code were
    read, not executed.
    """

    name: ClassVar[str] = "lite_ppo"
    uneven_groups: ClassVar[bool] = False

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens is half of the method."""

    query_weight = Method.query_weight

    def divisor(self, reward_PG: Tensor, p_P1: Tensor) -> Tensor:
        """The standard deviation of all rewards of the step."""
        return p_P1 * 0 + reward_PG.std(correction=self.ddof)


def beta_shape(p_P: Tensor) -> tuple[Tensor, Tensor]:
    """alpha and beta of the batch's accuracies p_P, 0-dimensional."""
    mean, variance = p_P.mean(), p_P.var() if len(p_P) > 1 else p_P.sum() * 0
    spread = variance > EQUAL**2
    k = (mean * (1 - mean) / variance.where(spread, variance + 1) - 1) * spread
    return (1 + k * mean / 3).clamp(min=1), (1 + k * (1 - mean) / 3).clamp(min=1)


@dataclass(frozen=True)
class Bnpo(Clipped, GroupRelative):
    """BNPO (arXiv 2506.02864): rewards divided by the density of a Beta distribution fitted to the batch's accuracies.

    Beta Normalization Policy Optimization. With m and v the mean and sample variance of p over the prompts of the
    global step: k = m(1 - m)/v - 1, alpha = max(1, 1 + k m/3), beta = max(1, 1 + k(1 - m)/3), A = (r - mean r)
    min(1/Beta(p; alpha, beta), 1e6); A_PG. The loss is PPO's clipped surrogate summed over tokens, mean over
    sequences.

    Defaults: clip .2/.2, `seq-mean-token-sum` (released code). Edge cases: v = 0 or one prompt gives the weight 1
    (the code divides by 0); v so large that k < 0 gives alpha = beta = 1, weight 1. Reductions: alpha = beta = 1 is
    `dr_grpo`'s A, alpha = beta = 3/2 is `grpo`'s up to the factor 8/pi.

    The paper's decomposition of several rewards is left out. TRL's `loss_type=bnpo` is another thing, a mean over the
    tokens of a local batch. W(p) depends on the batch: no curve. Checked: weights equal the authors' function
    (executed). Not verified: the arXiv number is from memory.
    """

    name: ClassVar[str] = "bnpo"
    uneven_groups: ClassVar[bool] = False

    aggregation: Aggregation = "seq-mean-token-sum"
    """How token losses become one number; the sum over tokens in the released code."""

    query_weight = Method.query_weight

    def divisor(self, reward_PG: Tensor, p_P1: Tensor) -> Tensor:
        """The density at p, at least 1e-6; the groups must be one whole step."""
        alpha, beta = beta_shape(p_P1.squeeze(-1))
        log_density_P1 = (alpha - 1).xlogy(p_P1) + (beta - 1).xlogy(1 - p_P1)
        log_density_P1 = log_density_P1 - alpha.lgamma() - beta.lgamma() + (alpha + beta).lgamma()
        return log_density_P1.exp().clamp(min=1e-6)


@dataclass(frozen=True)
class ReinforcePp(Clipped):
    """REINFORCE++ (arXiv 2501.03262): rewards whitened over the tokens of the whole global step, without groups.

    x = r (`baseline=none`), or x = r - mean r of the group (`baseline=group`, REINFORCE++-baseline); then A = (x -
    mean) / sqrt(var + 1e-8) over all tokens of the step, where each token carries its sequence's x and var is the
    sample variance. A_PG, the same for the tokens of a rollout; discount 1. The loss is PPO's clipped surrogate.

    Defaults: clip .2/.2, mean over tokens (released code). Edge cases: all x equal gives A = 0. Groups with p = 0 or
    p = 1 have a gradient: with `baseline=group` their x is 0, but the token-weighted mean of x is not 0 if correct and
    incorrect answers differ in length, so all of them get the same small advantage. That is the method, and it stays.

    Disagreement: the paper subtracts a KL penalty to a reference policy from the reward of each token. The suite has
    no reference policy, so there is none here. Checked: both baselines equal verl 0.9.1's functions; TRL has none.
    """

    name: ClassVar[str] = "reinforce_pp"
    uses_dead_groups: ClassVar[bool] = True

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in the released code."""
    baseline: Literal["none", "group"] = "none"
    """The quantity that is whitened: the reward, or its difference from the group's mean."""

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        x_PG = step.reward_PG.double()
        if self.baseline == "group":
            x_PG = x_PG - x_PG.mean(-1, keepdim=True)
        advantage_PG = whitened(x_PG, step.length_PG)
        return Signals.of(advantage_PG), state


def answer_entropy(answer_PG: Tensor) -> Tensor:
    """Entropy of each group's distinct answers in bits, P, float64."""
    same_PGG = answer_PG[:, :, None] == answer_PG[:, None, :]
    return -same_PGG.double().mean(-1).log2().mean(-1)


@dataclass(frozen=True)
class Copo(Clipped, Standardized):
    """COPO (arXiv 2508.04138): a batch-level advantage of each prompt beside the group's, blended by the answers'
    entropy.

    Consistency-aware Policy Optimization. Local: A_l as in `grpo`. Global: R_i = mean r of group i, A_g = (R_i - mean
    R) / std R over the prompts of the global step, the same for all rollouts and tokens. H_i is the entropy in bits
    of the group's distinct answers, w_i = sigmoid(k (H_i - b)). The loss has two clipped surrogates, w f(r, A_l) + (1
    - w) f(r, A_g), not one blended advantage, as clipping depends on each sign. Both are columns PG of the signals,
    times their weight; their sum is the advantage at a ratio of 1.

    Defaults: k = 5, b = 1 (released script; another for 3B has k = 20, the functions' own are 1 and .5), clip .2/.2.
    Edge cases: one prompt, or equal R, gives A_g = 0; answers that cannot be extracted are one class of answers.
    Reduction: `blend=none` is `grpo`.

    Disagreements: the paper names k and b gamma and rho. The released launch script sets a blend, `soft-with-zero`,
    that its own code rejects (it knows `soft with zero`), and turns the consistency factor off that the paper
    describes. Which blend made the published numbers is not known; results here are results of our choice, `soft`
    without the factor. Default `ddof=0`, the code's is 1. Checked: the released code was read, not executed. Neither
    verl nor TRL has it.
    """

    name: ClassVar[str] = "copo"
    columns: ClassVar[tuple[str, ...]] = ("local", "batch")
    needs: ClassVar[frozenset[Need]] = frozenset({"answers"})

    blend: Literal["soft", "soft-zero", "forced", "none", "global"] = "soft"
    """w: sigmoid(k (H - b)); the same but 0 for rewards of 0; the same but 0 where A_l is 0; 1; 0."""
    steepness: float = dataclasses.field(default=5.0, metadata={"gt": 0.0})
    """k of the blend's sigmoid, per bit of entropy."""
    midpoint: float = dataclasses.field(default=1.0, metadata={"ge": 0.0})
    """b: the entropy of the answers, bits, at which both advantages weigh the same."""
    consistency: bool = False
    """Multiply R_i by 1 - H_i (1 - 1/G) / log2 G, as the paper describes and the released script does not."""

    @property
    def uses_dead_groups(self) -> bool:
        return self.blend != "none"

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        assert step.answer_PG is not None
        reward_PG, H_P = step.reward_PG.double(), answer_entropy(step.answer_PG)
        local_PG, R_P, G = self.standardized(reward_PG), reward_PG.mean(-1), reward_PG.shape[-1]
        if self.consistency:
            R_P = R_P * (1 - H_P * (1 - 1 / G) / math.log2(G))
        w_PG = ((H_P - self.midpoint) * self.steepness).sigmoid()[:, None].expand_as(local_PG)
        weights = {"soft": w_PG, "none": w_PG * 0 + 1, "global": w_PG * 0}
        weights |= {"soft-zero": w_PG * (reward_PG != 0), "forced": w_PG * (local_PG != 0)}
        weight_PG = weights[self.blend]
        columns = {"local": weight_PG * local_PG, "batch": (1 - weight_PG) * self.standardized(R_P)[:, None]}
        has_gradient_PG = (columns["local"] != 0) | (columns["batch"] != 0)
        return Signals(columns["local"] + columns["batch"], has_gradient_PG, columns=columns), state

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        """The surrogates of both advantages; each weight is in its advantage, as f(r, wA) = w f(r, A)."""
        local_BT = super().policy_loss(batch.replace(advantage_BT=batch.columns["local"][:, None]))
        return local_BT + super().policy_loss(batch.replace(advantage_BT=batch.columns["batch"][:, None]))
