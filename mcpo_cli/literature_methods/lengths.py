"""Methods that take the length of a response into account."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from mcpo_cli.methods.base import Method, Signals, State, Step
from mcpo_cli.methods.group_relative import EQUAL, Clipped, Normalized, Standardized, whitened
from mcpo_cli.methods.settings import TrainSettings


@dataclass(frozen=True)
class Gdpo(Clipped, Standardized):
    """GDPO (arXiv 2601.05242): each reward channel normalised within its group, then their sum over the batch.

    Group reward-Decoupled Normalization Policy Optimization. Channels: r, and minus the length |y| of a response with
    the weight `brevity`. A' = the sum over channels of weight (channel - mean) / std, with mean and std of the group;
    then A = (A' - mean A') / std A' over all rollouts of the global step (`whiten=sequences`), or over all its tokens
    with the sample variance (`whiten=tokens`); A_PG. The loss is PPO's clipped surrogate.

    Defaults: both channels weigh 1, clip .2/.2. Edge cases: a channel that is equal within a group adds 0; so groups
    with p = 0 or p = 1 have a gradient by their lengths, unless `brevity` is 0. W(p) depends on the batch: no curve.
    Reduction: without lengths and with `whiten=tokens` it is REINFORCE++-baseline of `grpo`'s advantages.

    Disagreements: verl 0.9.1 normalises over tokens, TRL 1.16 over sequences with `ddof=1`; both take any reward
    functions; here the second reward is the length, because tasks have one reward. Checked: without lengths equal to
    verl's function; TRL's lines were read.
    """

    name: ClassVar[str] = "gdpo"

    brevity: float = dataclasses.field(default=1.0, metadata={"ge": 0.0})
    """Weight of short responses relative to the reward."""
    whiten: Literal["sequences", "tokens"] = "sequences"
    """Over what the sum of the channels is normalised."""

    @property
    def uses_dead_groups(self) -> bool:
        return self.brevity > 0

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        sum_PG = self.standardized(step.reward_PG) - self.brevity * self.standardized(step.length_PG)
        by_token_PG = whitened(sum_PG, step.length_PG)
        by_sequence_PG = self.standardized(sum_PG.flatten()).view_as(sum_PG)
        advantage_PG = by_token_PG if self.whiten == "tokens" else by_sequence_PG
        # Channels that cancel leave a rounding error.
        advantage_PG = advantage_PG * (advantage_PG.abs() > EQUAL)
        return Signals.of(advantage_PG), state


@dataclass(frozen=True)
class Gfpo(Clipped, Normalized):
    """GFPO (arXiv 2508.09726): sample more, learn from the k shortest (or most efficient) rollouts of a group.

    Group Filtered Policy Optimization. Of G rollouts k are kept: the shortest, or the most efficient by r/|y|
    (`metric=efficiency`; ties by place). A as in `grpo` with mean and deviation over the kept rollouts; the others have
    A = 0 and do not count in the totals of the mini-batch. A_PG. The loss is PPO's clipped surrogate.

    Defaults: k = 8, clip .2/.2 (the paper has G up to 24, k up to 8). Edge cases: kept rollouts that are all correct or
    all wrong give 0 (`degenerate` looks at the kept ones). W(p) depends on lengths: no curve. Reduction: k = G is
    `grpo`.

    Disagreement: TRL had an experimental trainer, removed since; verl has none. Checked: the paper's text was read,
    no code executed.
    """

    name: ClassVar[str] = "gfpo"
    uneven_groups: ClassVar[bool] = False

    keep: int = dataclasses.field(default=8, metadata={"ge": 2})
    """k: rollouts of a group that are learned from; at most `train.rollouts`."""
    metric: Literal["length", "efficiency"] = "length"
    """Keep the shortest, or those with the most reward per token."""

    def contradictions(self, train: TrainSettings) -> Iterator[tuple[str, str]]:
        yield from super().contradictions(train)
        if self.keep > train.rollouts:
            yield (
                f"method.keep={self.keep} is more than train.rollouts={train.rollouts}",
                f"method.keep={train.rollouts}",
            )

    query_weight = Method.query_weight

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        reward_PG, length_PG = step.reward_PG.double(), step.length_PG
        order_PG = length_PG if self.metric == "length" else -reward_PG / length_PG
        kept_PK = order_PG.argsort(stable=True)[:, : self.keep]
        advantage_PK = self.advantages(reward_PG.gather(-1, kept_PK), step.correct_PG.gather(-1, kept_PK))
        advantage_PG = (reward_PG * 0).scatter(-1, kept_PK, advantage_PK)
        counts_PG = (length_PG * 0).scatter(-1, kept_PK, 1).bool()
        return Signals.of(advantage_PG, counts_PG), state


@dataclass(frozen=True)
class GrpoLambda(Clipped, Standardized):
    """GRPO-lambda (arXiv 2505.18086): a penalty on length, only for the prompts that the policy answers best.

    Prompts are ordered by accuracy; in the best `share` of the global step's prompts (all of them at a tie) a right
    answer gets r - alpha sigmoid((|y| - mean)/std), mean and deviation over the lengths of the group's correct answers;
    elsewhere r stays. A as in `grpo`, of these rewards; A_PG. The loss is PPO's clipped surrogate.

    Defaults: share .2, alpha .2, clip .2/.2. Not verified: alpha, share and the exact length term are from memory and
    from the works that it builds on; the abstract has the switch by accuracy. Edge cases: prompts with p = 1 learn
    through their lengths, which is what the method is for; lengths that are all equal leave A as it is. W(p) depends
    on the batch: no curve. Not to be confused with lambda-GRPO (2510.06870). Neither verl nor TRL has it.
    """

    name: ClassVar[str] = "grpo_lambda"

    share: float = dataclasses.field(default=0.2, metadata={"gt": 0.0, "le": 1.0})
    """lambda: the share of prompts, by accuracy, whose correct answers pay for their length."""
    alpha: float = dataclasses.field(default=0.2, metadata={"ge": 0.0, "lt": 1.0})
    """Approximate reward that the longest correct answer loses."""

    @property
    def uses_dead_groups(self) -> bool:
        return self.alpha > 0

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        right_PG, length_PG = step.correct_PG.double(), step.length_PG.double()
        number = max(int(self.share * len(right_PG)), 1)
        pays_P1 = (step.p_P >= step.p_P.sort(descending=True).values[number - 1])[:, None]
        count_P1 = right_PG.sum(-1, keepdim=True).clamp(min=1)
        centred_PG = length_PG - (length_PG * right_PG).sum(-1, keepdim=True) / count_P1
        std_P1 = ((centred_PG**2 * right_PG).sum(-1, keepdim=True) / count_P1).sqrt()
        z_PG = centred_PG / std_P1.where(std_P1 > EQUAL, 1.0) * (std_P1 > EQUAL)
        advantage_PG = self.standardized(step.reward_PG - self.alpha * z_PG.sigmoid() * right_PG * pays_P1)
        return Signals.of(advantage_PG), state
