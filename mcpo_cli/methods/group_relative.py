"""Parts that GRPO and its relatives combine: advantages within a group, clipping, aggregation.

`PolicyGradient` has a loss of one term, `GroupRelative` centres rewards within a group, `Normalized` divides by their
standard deviation as well, `Clipped` is PPO's surrogate. GRPO is `Clipped, Normalized`; a method overrides the one part
that it changes, and combines only the parts whose options it has.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from mcpo_cli.methods.base import (
    Floats,
    Method,
    Quotient,
    Report,
    Signals,
    State,
    Step,
    Term,
    TokenBatch,
    TokenLoss,
)
from mcpo_cli.methods.settings import TrainSettings

if TYPE_CHECKING:
    from torch import Tensor

Aggregation = Literal["seq-mean-token-mean", "token-mean", "seq-mean-token-sum", "constant"]
"""Each token weighs 1/(B |y|), 1/N, 1/B or 1/(B L_max), for B sequences of |y| tokens, N tokens in all, and L_max the
longest response that is allowed."""


ONE_STEP = "with one gradient step per global step (train.mini_batch=train.prompts)"
"""The policy of that step is the rollout policy, so no token has drifted."""

EQUAL = 1e-9
"""Numbers with a smaller standard deviation are equal up to rounding; dividing by it would amplify that rounding."""


@dataclass(frozen=True)
class PolicyGradient(Method):
    """A loss of one term, `policy`: minus the ratio times the advantage, aggregated."""

    aggregation: Aggregation = "seq-mean-token-mean"
    """How token losses become one number."""

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        """policy_BT, minus the objective of each token: ratio times advantage."""
        return -batch.log_ratio_BT.exp() * batch.A_BT

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        """The term `policy`: `policy_loss` under the weights of `aggregation`."""
        return TokenLoss((Term("policy", self.policy_loss(batch), self.weight(batch)),))

    def weight(self, batch: TokenBatch) -> Tensor:
        """weight_B of each token of a sequence under `aggregation`."""
        length_B, total = batch.length_B, batch.total
        if self.aggregation == "token-mean":
            return length_B * 0 + 1 / total.tokens
        if self.aggregation == "seq-mean-token-mean":
            return 1 / (total.sequences * length_B)
        tokens = total.max_response if self.aggregation == "constant" else 1
        return length_B * 0 + 1 / (total.sequences * tokens)

    def report(self, batch: TokenBatch) -> Report:
        """`train/approx_kl` over the tokens with an advantage: k3, E[r - 1 - log r] = KL(old || new)."""
        active_BT, d_BT = batch.active_BT, batch.log_ratio_BT
        return Report({"train/approx_kl": (((d_BT.expm1() - d_BT) * active_BT).sum(), active_BT.sum())})


@dataclass(frozen=True)
class GroupRelative(PolicyGradient):
    """Advantages from comparison within a group of rollouts."""

    degenerate: Literal["zero", "shaped"] = "zero"
    """Advantage of groups with p = 0 or 1: `zero`, or `shaped` to keep what overlong shaping leaves there."""

    @property
    def uneven_groups(self) -> bool:
        return True

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """p(1 - p), the weight of A = r - mean r and of any other baseline: a constant of the group drops out of W."""
        return p * (1 - p)

    def advantages(self, reward_PG: Tensor, correct_PG: Tensor) -> Tensor:
        """A_i = (R_i - `baseline`) / `divisor` of each group.

        Args:
            reward_PG: rewards, shaped or not.
            correct_PG: 0 or 1 (or bool); p comes from these, never from the reward.

        Returns:
            A_PG in float64, free of NaN; 0 for groups whose rewards are all equal and, unless
            `degenerate="shaped"`, for groups with p = 0 or 1.
        """
        reward_PG = reward_PG.double()
        p_P1 = correct_PG.double().mean(-1, keepdim=True)
        centered_PG = reward_PG - self.baseline(reward_PG)
        live_P1 = reward_PG.std(-1, keepdim=True, correction=0) > EQUAL
        if self.degenerate == "zero":
            live_P1 = live_P1 & (p_P1 > 0) & (p_P1 < 1)
        divisor_P1 = self.divisor(reward_PG, p_P1)
        advantage_PG: Tensor = centered_PG / divisor_P1.where(live_P1, divisor_P1 * 0 + 1) * live_P1
        return advantage_PG

    def baseline(self, reward_PG: Tensor) -> Tensor:
        """The baseline that is subtracted from a group's rewards, P1: their mean."""
        return reward_PG.mean(-1, keepdim=True)

    def divisor(self, reward_PG: Tensor, p_P1: Tensor) -> Tensor:
        """The divisor of a group's rewards after the baseline, P1, positive wherever they differ: 1."""
        return p_P1 * 0 + 1

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        """The signals of `advantages`; rollouts whose advantage is not 0 have a gradient."""
        advantage_PG = self.advantages(step.reward_PG, step.correct_PG)
        return Signals.of(advantage_PG), state


@dataclass(frozen=True)
class Standardized(PolicyGradient):
    """A method that divides something by its standard deviation."""

    ddof: int = dataclasses.field(default=0, metadata={"ge": 0, "le": 1})
    """Of the standard deviation: 0 as proof A.1 needs, 1 as in verl, TRL and most released code."""

    def standardized(self, value: Tensor) -> Tensor:
        """(value - mean) / std along the last dimension, float64; 0 where all are equal."""
        value = value.double()
        std = value.std(-1, keepdim=True, correction=self.ddof) if value.shape[-1] > 1 else value * 0
        is_spread = std > EQUAL
        result: Tensor = (value - value.mean(-1, keepdim=True)) / std.where(is_spread, std * 0 + 1) * is_spread
        return result


@dataclass(frozen=True)
class Normalized(Standardized, GroupRelative):
    """Advantages divided by the standard deviation of the group's rewards (Eq. 1)."""

    def scale(self, p: Floats) -> Floats:
        """A further divisor that depends on accuracy (Eq. 13); 1 for every p here. Elementwise over `p` in [0, 1]."""
        return p * 0 + 1

    def query_weight(self, p: Floats, rollouts: float = math.inf) -> Floats:
        """sqrt(p(1 - p)) / scale(p): Eq. 6, Eq. 14 and (A.2)."""
        root = (p * (1 - p)) ** 0.5
        return root / (self.scale(p) + (root == 0))

    def divisor(self, reward_PG: Tensor, p_P1: Tensor) -> Tensor:
        """std R times scale(p): Eq. 1, 12 and 13."""
        std_P1 = reward_PG.std(-1, keepdim=True, correction=self.ddof)
        scale_P1 = self.scale(p_P1)
        # MCPO has scale(1) = 0: a degenerate group that keeps its shaped signal is not reweighted.
        divisor_P1: Tensor = std_P1 * scale_P1.where(scale_P1 > 0, scale_P1 + 1)
        return divisor_P1


@dataclass(frozen=True)
class Clipped(PolicyGradient):
    """PPO's clipped surrogate over token ratios (Eq. 2-3)."""

    clip_low: float = dataclasses.field(default=0.2, metadata={"ge": 0.0, "lt": 1.0})
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: float = dataclasses.field(default=0.2, metadata={"ge": 0.0})
    """The ratio is clipped above at 1 + clip_high."""

    def without_effect(self, train: TrainSettings) -> Iterator[str]:
        """The ratio is 1 in the only gradient step of a global step, as no gradient step came before."""
        yield from super().without_effect(train)
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        options = [name for name in ("clip_low", "clip_high") if getattr(self, name) != defaults[name]]
        if options and train.mini_batch == train.prompts:
            names = " and ".join(f"method.{name}" for name in options)
            yield f"{ONE_STEP}, ratios are 1 and nothing is clipped: no effect of {names}"

    def log_ratio(self, batch: TokenBatch) -> Tensor:
        """log_ratio_BT, which is clipped: one ratio per token. A sequence-level method overrides it."""
        return batch.log_ratio_BT

    def bounds(self, batch: TokenBatch) -> tuple[Any, Any]:
        """Bounds of the ratio, below and above: floats, or tensors BT."""
        return 1 - self.clip_low, 1 + self.clip_high

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        """-min(r A, clip(r) A) of each token."""
        ratio_BT = self.log_ratio(batch).exp()
        clipped_BT = ratio_BT.clamp(*self.bounds(batch))
        return -(ratio_BT * batch.A_BT).minimum(clipped_BT * batch.A_BT)

    def report(self, batch: TokenBatch) -> Report:
        """Clip shares of the tokens with an advantage."""
        shares = clip_shares(self.bounds(batch), self.log_ratio(batch), batch.advantage_BT, batch.active_BT)
        return Report({**shares, **super().report(batch).sums})


def whitened(value_PG: Tensor, length_PG: Tensor) -> Tensor:
    """(value - mean) / sqrt(var + 1e-8) over all tokens, each with its sequence's value; 0 if all are equal."""
    tokens = length_PG.sum()
    centred_PG = value_PG - (value_PG * length_PG).sum() / tokens
    variance = (centred_PG**2 * length_PG).sum() / (tokens - 1).clamp(min=1)
    result_PG: Tensor = centred_PG / (variance + 1e-8).sqrt() * (variance > EQUAL**2)
    return result_PG


def clip_shares(bounds: tuple[Any, Any], log_ratio: Tensor, advantage: Tensor, among: Tensor) -> dict[str, Quotient]:
    """`train/clip_high`, `train/clip_low`: shares of the tokens or sequences in `among` that lose their gradient."""
    (low, high), ratio, count = bounds, log_ratio.exp(), among.sum()
    up = among & (advantage > 0) & (ratio > high)
    down = among & (advantage < 0) & (ratio < low)
    return {"train/clip_high": (up.sum(), count), "train/clip_low": (down.sum(), count)}
