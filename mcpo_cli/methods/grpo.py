"""GRPO and the published variants that the MCPO paper starts from: DAPO, Dr. GRPO, GSPO."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcpo_cli.methods.base import Report, TokenBatch
from mcpo_cli.methods.group_relative import Aggregation, Clipped, GroupRelative, Normalized, clip_shares

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Grpo(Clipped, Normalized):
    """GRPO (arXiv 2402.03300) without its KL term, as the MCPO paper writes it (Eq. 1-2): no filter.

    Group Relative Policy Optimization; every option at the shared default. With rewards r_i of the G rollouts of a
    prompt and the ratio q of a token's probability to its probability when it was sampled:

        A_i = (r_i - mean(r)) / std(r), and 0 where all rewards are equal
        loss = -min(q A, clip(q, 1 - clip_low, 1 + clip_high) A), mean over the tokens, then over the responses
    """

    name: ClassVar[str] = "grpo"


@dataclass(frozen=True)
class Dapo(Clipped, Normalized):
    """DAPO (arXiv 2503.14476) as the MCPO paper runs it (Section 6.1): clip-higher and the online filter.

    Dynamic sAmpling Policy Optimization, the baseline. Advantages and loss are those of `grpo` with
    clip_high = 0.28. A prompt stays in the batch only if 0 < p < 1 for its share p of correct rollouts; others are
    sampled in place of the rest.
    """

    name: ClassVar[str] = "dapo"

    clip_high: float = dataclasses.field(default=0.28, metadata={"ge": 0.0})
    dynamic_sampling: bool = True


@dataclass(frozen=True)
class DrGrpo(Clipped, GroupRelative):
    """Dr. GRPO (arXiv 2503.20783): no division by the standard deviation, none by the response's length.

    A = r - mean r; the loss sums -min(r A, clip(r) A) over tokens and divides by B L_max. The paper's formula has no
    1/L_max; its released code, verl (`loss_scale_factor`) and TRL (`max_completion_length`) divide by a constant, and
    so do we, by the response limit. It scales the step by 1/L_max: compare gradient norms where clipping of gradients
    is active.
    """

    name: ClassVar[str] = "dr_grpo"

    aggregation: Aggregation = "constant"
    """How token losses become one number; a constant divisor is half of the method."""


@dataclass(frozen=True)
class Gspo(Clipped, Normalized):
    """GSPO (arXiv 2507.18071): one ratio a sequence, normalised by its length and clipped as a whole.

    Group Sequence Policy Optimization. s = exp(mean_t log(pi / pi_old)) (Eq. 7); loss -min(s A, clip(s) A), mean over
    sequences (Eq. 5). Defaults of section 5.1: s is clipped to [1 - 3e-4, 1 + 4e-4]. verl's function takes any
    aggregation; only the mean over sequences is GSPO.
    """

    name: ClassVar[str] = "gspo"

    aggregation: Literal["seq-mean-token-mean"] = "seq-mean-token-mean"
    """The mean over sequences, which have one ratio each."""
    clip_low: float = dataclasses.field(default=3e-4, metadata={"ge": 0.0, "lt": 1.0})
    """The sequence's ratio is clipped below at 1 - clip_low."""
    clip_high: float = dataclasses.field(default=4e-4, metadata={"ge": 0.0})
    """The sequence's ratio is clipped above at 1 + clip_high."""

    def log_ratio(self, batch: TokenBatch) -> Tensor:
        """log s, the same for every token of a sequence, BT."""
        return batch.mean_B(batch.log_ratio_BT)[:, None].expand_as(batch.log_ratio_BT)

    def report(self, batch: TokenBatch) -> Report:
        """Clip shares of sequences, not of tokens; the divergence is over tokens."""
        log_ratio_B, advantage_B = batch.mean_B(batch.log_ratio_BT), batch.advantage_BT[:, 0]
        shares = clip_shares(self.bounds(batch), log_ratio_B, advantage_B, batch.has_advantage_B)
        return Report({**super().report(batch).sums, **shares})
