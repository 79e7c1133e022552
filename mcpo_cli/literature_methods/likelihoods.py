"""Methods that treat likely and unlikely responses or tokens differently."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import Method, Need, Signals, State, Step, Term, TokenBatch, TokenLoss
from mcpo_cli.methods.group_relative import Aggregation, Clipped, Normalized, Standardized
from mcpo_cli.methods.settings import TrainSettings

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Sharpen(Clipped, Normalized):
    """Advantage sharpening of XRPO (arXiv 2510.06672): correct answers that are unlikely in their group get a bonus.

    A as in `grpo`; s the mean log-probability of a response's tokens under the rollout policy, eta = exp(s - mean s
    of the group); correct rollouts have A + min(max(bonus (1 - eta), 0), most A); A_PG. The loss is PPO's clipped
    surrogate.

    Defaults: clip .2/.2; `bonus` and `most` are 1, a placeholder: the paper's lambda and kappa were not verified, nor
    was the formula beyond a secondary source. Edge cases: A = 0 stays 0. Its allocator of rollouts and its in-context
    seeding change the sampler and are left out. W(p) depends on log-probabilities: no curve. Neither verl nor TRL has
    it.
    """

    name: ClassVar[str] = "sharpen"
    needs: ClassVar[frozenset[Need]] = frozenset({"logp"})

    bonus: float = dataclasses.field(default=1.0, metadata={"ge": 0.0})
    """lambda: the bonus of a correct answer of no likelihood."""
    most: float = dataclasses.field(default=1.0, metadata={"ge": 0.0})
    """kappa: the bonus is at most this part of the advantage."""

    query_weight = Method.query_weight

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        signals, state = super().signals(step, state)
        logp_PG = step.mean_logp_PG
        novelty_PG = 1 - (logp_PG - logp_PG.mean(-1, keepdim=True)).exp()
        gain_PG = (self.bonus * novelty_PG).clamp(min=0).minimum(self.most * signals.advantage.clamp(min=0))
        return dataclasses.replace(signals, advantage=signals.advantage + gain_PG * step.correct_PG), state


@dataclass(frozen=True)
class Unlikeliness(Clipped, Standardized):
    """Unlikeliness reward (arXiv 2506.02355): correct answers are worth less the likelier they were.

    rank = the rank of a rollout in its group by mean log-probability of its tokens under the rollout policy, 0 the
    least likely (ties by place); r' = r (1 - beta rank/G); A as in `grpo`, of r'; A_PG. The loss is PPO's clipped
    surrogate.

    Defaults: beta .25, clip .2/.2. Edge cases: groups with p = 0 have r' = 0 and A = 0; groups with p = 1 get a
    full-size advantage, as any spread of r' is divided by itself: mastered prompts are actively flattened, the
    opposite of MCPO's hinge. `mastered=zero` takes that away, to tell the two effects apart. Reduction: beta = 0 is
    `grpo`.

    Disagreements: the code ranks by the mean log-probability, the paper by probability; the paper's penalty is beta
    (G - rank)/G with rank 0 the most likely, beta/G more for everyone (`convention=paper`; from memory, not
    verified). Default the code's. The published recipe has two epochs a batch, a KL term of .10 and only groups with
    a correct answer; here the reward alone is the method. Checked: the released code was read, not executed. Neither
    verl nor TRL has it.
    """

    name: ClassVar[str] = "unlikeliness"
    uneven_groups: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"logp"})

    beta: float = dataclasses.field(default=0.25, metadata={"ge": 0.0, "le": 1.0})
    """Approximate reward that the likeliest correct answer of a group loses."""
    convention: Literal["code", "paper"] = "code"
    """Penalty beta rank/G, 0 for the least likely (released code), or beta (rank + 1)/G (paper)."""
    mastered: Literal["keep", "zero"] = "keep"
    """Advantages of prompts with p = 1: those of their ranks, or 0."""

    @property
    def uses_dead_groups(self) -> bool:
        return self.mastered == "keep"

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        rank_PG = step.mean_logp_PG.argsort(stable=True).argsort() + (self.convention == "paper")
        reward_PG = step.reward_PG * (1 - self.beta * rank_PG / rank_PG.shape[-1])
        advantage_PG = self.standardized(reward_PG)
        if self.mastered == "zero":
            advantage_PG = advantage_PG * (step.p_P < 1)[:, None]
        return Signals.of(advantage_PG), state


def covariance(batch: TokenBatch) -> Tensor:
    """cov_BT = (A - mean A)(log pi - mean log pi), means over the tokens of `batch`, a mini-batch; 0 on padding."""
    mask_BT, tokens = batch.mask_BT, batch.mask_BT.sum()
    A_BT = batch.A_BT * mask_BT
    logp_BT = batch.logp_BT.detach()
    centred_BT = (A_BT - A_BT.sum() / tokens) * (logp_BT - (logp_BT * mask_BT).sum() / tokens)
    return centred_BT * mask_BT


@dataclass(frozen=True)
class ClipCov(Clipped, Normalized):
    """Clip-Cov (arXiv 2505.22617): random tokens of large covariance of advantage and log-probability are left out.

    cov = (A - mean A)(log pi - mean log pi), means over the mini-batch's tokens at the current policy; of the
    unclipped tokens with cov_low < cov < cov_high, random ones (`share` of all tokens, at least one) have their loss
    multiplied by 0 (column `kept`, BT). A as in `grpo`; the loss is PPO's clipped surrogate.

    Defaults: share 2e-4, bounds 1 and 5, clip .2/.2 (verl's function). Edge cases: no candidate, nothing dropped. The
    draw uses the mini-batch's own random stream, so a resumed run repeats it.

    Disagreement: verl 0.9.1 computes means and draws in each micro-batch, ours are the mini-batch's; that costs a
    forward pass without a graph. Checked: loss and gradient equal verl's function but for the draw, which is among
    the same candidates. TRL has none.
    """

    name: ClassVar[str] = "clip_cov"
    token_columns: ClassVar[tuple[str, ...]] = ("kept",)
    prepares: ClassVar[bool] = True
    stop_gradients: ClassVar[bool] = True

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in verl's function."""
    share: float = dataclasses.field(default=2e-4, metadata={"gt": 0.0, "le": 1.0})
    """Of the mini-batch's tokens that are dropped."""
    cov_low: float = 1.0
    """Covariance above which a token may be dropped."""
    cov_high: float = 5.0
    """Covariance below which a token may be dropped; beyond it tokens are left alone."""

    def contradictions(self, train: TrainSettings) -> Iterator[tuple[str, str]]:
        yield from super().contradictions(train)
        if self.cov_low >= self.cov_high:
            yield (
                f"method.cov_low={self.cov_low:g} is not below method.cov_high={self.cov_high:g}: no token is dropped",
                f"method.cov_low={ClipCov.cov_low:g} method.cov_high={ClipCov.cov_high:g}",
            )

    def prepare(self, batch: TokenBatch, seed: int) -> Mapping[str, Tensor]:
        cov_BT, ratio_BT = covariance(batch), self.log_ratio(batch).exp()
        clipped_BT = ratio_BT.clamp(*self.bounds(batch)) * batch.A_BT < ratio_BT * batch.A_BT
        candidate_BT = (cov_BT > self.cov_low) & (cov_BT < self.cov_high) & ~clipped_BT & batch.mask_BT
        place_N2 = candidate_BT.nonzero()
        number = min(max(int(self.share * batch.total.tokens), 1), len(place_N2))
        drawn_N2 = place_N2[random.Random(seed).sample(range(len(place_N2)), number)]
        kept_BT = ratio_BT.detach() * 0 + 1
        kept_BT[drawn_N2[:, 0], drawn_N2[:, 1]] = 0
        return {"kept": kept_BT}

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        return super().policy_loss(batch) * batch.columns["kept"]


@dataclass(frozen=True)
class KlCov(Normalized):
    """KL-Cov (arXiv 2505.22617): the tokens of largest covariance of advantage and log-probability pay for their drift.

    cov as in `clip_cov`; loss -r A of every token, unclipped, plus kappa |log pi - log pi_old| for the share of the
    mini-batch's tokens, at least one, of largest cov at the current policy (column `chosen`, BT). A as in `grpo`.

    Defaults: share 2e-4 (verl), kappa .1 (verl's config; its docstring says 1), mean over tokens. Edge cases: a token
    of a dead group may be chosen and then has a gradient; at log pi = log pi_old the penalty has no gradient.

    Disagreement: verl 0.9.1 chooses in each micro-batch, we in the mini-batch; that costs a forward pass without a
    graph. Checked: loss and gradient equal verl's function. TRL has none.
    """

    name: ClassVar[str] = "kl_cov"
    token_columns: ClassVar[tuple[str, ...]] = ("chosen",)
    prepares: ClassVar[bool] = True
    stop_gradients: ClassVar[bool] = True

    aggregation: Aggregation = "token-mean"
    """How token losses become one number; the mean over tokens in verl's function."""
    share: float = dataclasses.field(default=2e-4, metadata={"gt": 0.0, "le": 1.0})
    """Of the mini-batch's tokens that pay."""
    kappa: float = dataclasses.field(default=0.1, metadata={"ge": 0.0})
    """Weight of their drift."""

    @property
    def screens(self) -> bool:
        return self.kappa > 0

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """Every rollout may have a gradient: any of its tokens may be chosen to pay."""
        signals, state = super().signals(step, state)
        return dataclasses.replace(signals, has_gradient_PG=signals.has_gradient_PG | (self.kappa > 0)), state

    def prepare(self, batch: TokenBatch, seed: int) -> Mapping[str, Tensor]:
        cov_BT = covariance(batch).where(batch.mask_BT, -float("inf"))
        number = max(int(self.share * batch.total.tokens), 1)
        chosen_N = batch.logp_old_BT.flatten() * 0
        chosen_N[cov_BT.flatten().topk(number).indices] = 1
        return {"chosen": chosen_N.view_as(cov_BT)}

    def has_gradient(self, batch: TokenBatch) -> Tensor:
        return super().has_gradient(batch) | (batch.columns["chosen"] > 0).any(-1)

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        """The term `policy`, and `drift`: kappa |d| of the chosen tokens."""
        value_BT = self.kappa * batch.columns["chosen"] * batch.log_ratio_BT.abs()
        return TokenLoss((*super().token_loss(batch).terms, Term("drift", value_BT, self.weight(batch))))
