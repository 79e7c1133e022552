"""Methods whose advantage depends on the outcome, correct or not, and on how many other rollouts had it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mcpo_cli.methods.base import Floats, Signals, State, Step
from mcpo_cli.methods.group_relative import Aggregation, Clipped, GroupRelative, Standardized
from mcpo_cli.methods.settings import TrainSettings

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Ngrpo(Clipped, Standardized):
    """NGRPO (arXiv 2509.18851): a virtual rollout of maximal reward in every group, so that all-wrong groups count.

    Negative-enhanced Group Relative Policy Optimization. r' = r with `virtual` copies of `reward_max` appended; A =
    (r - mean r') / std r', A_PG for the real rollouts. The loss is PPO's clipped surrogate.

    Defaults: one virtual rollout, reward 1, clip .16/.24, mean over tokens (released code). Edge cases: p = 1 gives A
    = 0; p = 0 gives -1/sqrt(G) (`ddof=0`) or -1/sqrt(G+1) (`ddof=1`). It applies to mixed groups too, so the sum of A
    is below 0 in every group but those with p = 1. With shaped rewards `reward_max` stays the task's maximum, not the
    batch's.

    Disagreements: the released script filters groups with p = 1 out while sampling. `dynamic_sampling=true` does
    that, and keeps p = 0; the default filters nothing. Default `ddof=0`, the released code's is 1. Checked:
    advantages equal the authors' function (executed). Neither verl nor TRL has it.
    """

    name: ClassVar[str] = "ngrpo"
    uneven_groups: ClassVar[bool] = True

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in the released code."""
    clip_low: float = dataclasses.field(default=0.16, metadata={"ge": 0.0, "lt": 1.0})
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: float = dataclasses.field(default=0.24, metadata={"ge": 0.0})
    """The ratio is clipped above at 1 + clip_high."""
    virtual: int = dataclasses.field(default=1, metadata={"ge": 1})
    """Virtual rollouts of each group."""
    reward_max: float = 1.0
    """Their reward, the largest that the task gives."""

    def keeps(self, p: Floats) -> Floats:
        """All except the all-correct groups, which have no advantage."""
        return p < 1

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """p(1 - p) / sqrt(q(1 - q)) with q = (Gp + n)/(G + n), for `reward_max=1` and `ddof=0`."""
        n = self.virtual / rollouts
        root = ((p + n) * (1 - p)) ** 0.5 / (1 + n)
        return p * (1 - p) / (root + (root == 0))

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        G = step.reward_PG.shape[-1]
        rewards = step.reward_PG.double().new_full((len(step.reward_PG), G + self.virtual), self.reward_max)
        rewards[:, :G] = step.reward_PG
        advantage_PG = self.standardized(rewards)[:, :G]
        return Signals.of(advantage_PG), state


@dataclass(frozen=True)
class PsrNsr(Clipped):
    """PSR, NSR and W-REINFORCE (arXiv 2506.01347): reinforce correct answers with one weight, incorrect ones with
    another.

    Positive and negative sample reinforcement. A = `positive` for correct rollouts, -`negative` for incorrect ones,
    without baseline or scale; A_PG. The loss is PPO's clipped surrogate, averaged over tokens.

    Defaults: .1 and 1 (W-REINFORCE, the paper's lambda = .1); 1 and 0 is PSR, 0 and 1 is NSR; clip .2/.2. Edge cases:
    no group is dead, p = 0 and p = 1 have a gradient in full. Binary rewards only; shaped ones are refused. W(p) =
    (positive + negative) p(1 - p), as a constant of the group drops out of it. Checked: advantages equal the authors'
    function (executed). Neither verl nor TRL has it.
    """

    name: ClassVar[str] = "psr_nsr"
    uneven_groups: ClassVar[bool] = True
    binary_rewards: ClassVar[bool] = True
    uses_dead_groups: ClassVar[bool] = True

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in the released code."""
    positive: float = dataclasses.field(default=0.1, metadata={"ge": 0.0})
    """Advantage of correct rollouts (lambda)."""
    negative: float = dataclasses.field(default=1.0, metadata={"ge": 0.0})
    """Minus the advantage of incorrect rollouts."""

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        return (self.positive + self.negative) * p * (1 - p)

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        right_PG = step.correct_PG.double()
        advantage_PG = self.positive * right_PG - self.negative * (1 - right_PG)
        return Signals.of(advantage_PG), state


@dataclass(frozen=True)
class MaxRl(Clipped, GroupRelative):
    """MaxRL (arXiv 2602.02710): rewards divided by their mean, as the likelihood of a correct answer would have it.

    Maximum Likelihood Reinforcement Learning. A = (r - mean r) / mean r, A_PG; the gradient of log p to the order of
    G, the number of rollouts. The loss is PPO's clipped surrogate.

    Defaults: clip .2/.2 and the suite's aggregation; the loss is left open by the released code. Edge cases: p = 0
    gives A = 0. Rewards must not be negative: shaped ones are refused. W(p) = 1 - p: the hardest prompts that are
    solved at all weigh most, and mastered ones nothing, where MCPO's weight is constant above 1/2.

    Disagreement: SkyRL adds 1e-6 to the mean, prime-rl sets A = 0 where it is 0, and so do we. Checked:
    advantages on numbers worked by hand; prime-rl's lines were read. Neither verl 0.9.1 nor TRL has it.
    """

    name: ClassVar[str] = "max_rl"
    binary_rewards: ClassVar[bool] = True

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """1 - p, and 0 at p = 0."""
        return (1 - p) * (p > 0)

    def divisor(self, reward_PG: Tensor, p_P1: Tensor) -> Tensor:
        """The mean of the group's rewards, which are not negative, so it is positive if they differ."""
        return reward_PG.mean(-1, keepdim=True)


def none_of(p: Floats, k: int, rollouts: float, given: int = 0) -> Floats:
    """The probability that k rollouts are incorrect, drawn from G - given, of which G(1 - p) - given are incorrect."""
    chance = p * 0 + 1.0
    for i in range(given, k + given):
        share = 1 - p - i / rollouts
        chance = chance * (share + abs(share)) / 2 / (1 - i / rollouts)
    return chance


@dataclass(frozen=True)
class PassK(Clipped):
    """Pass@k training (arXiv 2508.10751): the analytic advantage of pass@k, from all subsets of k rollouts at once.

    c right of G: rho = 1 - C(G-c, k)/C(G, k), s = sqrt(rho (1 - rho)); right A = (1 - rho)/s, wrong A = (1 - rho -
    C(G-c-1, k-1)/C(G-1, k-1))/s; A_PG. The loss is PPO's clipped surrogate.

    Defaults: k = 4, clip .2/.2, the suite's aggregation. Edge cases: s = 0 gives A = 0, so prompts with p > 1 - k/G
    have no gradient: the opposite of MCPO's weight. With `dynamic_sampling` such groups pass the filter and train
    nothing. Binary rewards only; shaped ones are refused. Reduction: k = 1 is `grpo` with `ddof=0`.

    Disagreement: verl 0.9.1's `grpo_passk` is another paper's method, the best of the group against the second best.
    Checked: equal to a transcription of the authors' function (executed). TRL has none.
    """

    name: ClassVar[str] = "passk"
    binary_rewards: ClassVar[bool] = True

    k: int = dataclasses.field(default=4, metadata={"ge": 1})
    """Samples of which one has to be correct; at most the rollouts of a prompt."""

    def contradictions(self, train: TrainSettings) -> Iterator[tuple[str, str]]:
        yield from super().contradictions(train)
        if self.k > train.rollouts:
            yield f"method.k={self.k} is more than train.rollouts={train.rollouts}", f"method.k={train.rollouts}"

    def pair(self, p: Floats, rollouts: float) -> tuple[Floats, Floats]:
        """Advantages of correct and incorrect rollouts at accuracy p; both 0 where pass@k is certain, or 0."""
        failure = none_of(p, self.k, rollouts)
        s = (failure * (1 - failure)) ** 0.5
        # Rounding may make a variance of 0 slightly positive, so its root is compared with a threshold.
        live, divisor = s > 1e-6, s + (s <= 1e-6)
        failure_of_others = none_of(p, self.k - 1, rollouts, given=1)
        return failure / divisor * live, (failure - failure_of_others) / divisor * live

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """p(1 - p) times the difference of both advantages; 0 once fewer than k rollouts are incorrect."""
        right, wrong = self.pair(p, rollouts)
        return p * (1 - p) * (right - wrong)

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        right_P1, wrong_P1 = self.pair(step.p_P[:, None], step.correct_PG.shape[-1])
        advantage_PG = right_P1 * step.correct_PG + wrong_P1 * ~step.correct_PG.bool()
        return Signals.of(advantage_PG), state
