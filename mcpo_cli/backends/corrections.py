"""Corrections for a sampler whose log-probabilities differ from the trainer's: weights and masks of the policy loss.

A rollout engine rounds differently, so the policy that sampled is not quite the trained policy. With w the ratio
of both probabilities of a token, or of a whole response, before the update: truncation multiplies the loss by w cut to
the bounds (truncated importance sampling, TIS), a mask by w within the bounds and by 0 outside of them (masked
importance sampling, MIS; by token with both bounds it is IcePop). The off-policy mask of DeepSeek-V3.2 (arXiv
2512.02556) drops responses with A < 0 whose mean log pi_sampler - log pi at the current policy is above a threshold.

The local backend's sampler is exact unless `train.sampler_rounding` makes it inexact on purpose; verl's is the rollout
engine.

The off-policy mask equals TRL 1.16's (`off_policy_mask_threshold`), and truncation verl 0.9.1's
(`algorithm.rollout_correction`); both are executed in tests. The other weights follow the lines of TRL's
`vllm_importance_sampling_mode` and are tested on numbers worked by hand. No weight has a gradient.
"""

import dataclasses
from collections.abc import Mapping

from torch import Tensor

from mcpo_cli.backends.measure import MetricSums
from mcpo_cli.config.schema import Train
from mcpo_cli.errors import RunFailed
from mcpo_cli.methods import TokenBatch, TokenLoss

CORRECTED = "policy"
"""The loss term that weights apply to; others, such as the hinge, are not expectations over sampled tokens."""
SAMPLER, WEIGHT = "sampler_logp", "sampler_weight"
"""Token columns of a batch from an inexact sampler: its log-probabilities, nats, and the weight of each token."""


def rounded(logits: Tensor, step: float) -> Tensor:
    """The logits of an inexact sampler: rounded to multiples of `step` (`train.sampler_rounding`) unless it is 0."""
    return (logits / step).round() * step if step else logits


def asked(train: Train) -> bool:
    """True if `train` corrects anything."""
    return train.correction != "none" or train.off_policy_mask > 0


def columns(train: Train, trainer_PGT: Tensor, sampler_PGT: Tensor, mask_PGT: Tensor) -> dict[str, Tensor]:
    """The columns SAMPLER and WEIGHT, PGT, from both log-probabilities before the update; 0 on padding."""
    log_ratio_PGT = (trainer_PGT - sampler_PGT) * mask_PGT
    weight_PGT = weights(train, log_ratio_PGT) if train.correction != "none" else log_ratio_PGT * 0 + 1
    return {SAMPLER: sampler_PGT * mask_PGT, WEIGHT: weight_PGT * mask_PGT}


def weights(train: Train, log_ratio: Tensor) -> Tensor:
    """The weight of each token, from log w of each token (last dimension), which is 0 on padding."""
    level, _, way = train.correction.partition("-")
    if level == "sequence":
        log_ratio = log_ratio.sum(-1, keepdim=True).expand_as(log_ratio)
    ratio, low, high = log_ratio.exp(), train.correction_low, train.correction_high
    if way == "truncate":
        return ratio.clamp(low, high)
    return ratio * ((ratio >= low) & (ratio <= high))


def applied(train: Train, loss: TokenLoss, batch: TokenBatch) -> TokenLoss:
    """`loss` with the weights and the mask that `train` asks for; unchanged for an exact sampler.

    Raises:
        RunFailed: the loss has no term CORRECTED.
    """
    if WEIGHT not in batch.columns:
        return loss
    if all(term.name != CORRECTED for term in loss.terms):
        raise RunFailed(
            f"a correction weights the term `{CORRECTED}` of a loss; this method has none",
            fix="train.correction=none train.off_policy_mask=0",
        )
    weight_BT = batch.columns[WEIGHT].to(batch.logp_BT.dtype)
    if train.off_policy_mask:
        weight_BT = weight_BT * ~off_policy(batch, train.off_policy_mask)[:, None]
    return TokenLoss(
        tuple(
            dataclasses.replace(term, value_BT=term.value_BT * weight_BT) if term.name == CORRECTED else term
            for term in loss.terms
        )
    )


def off_policy(batch: TokenBatch, threshold: float) -> Tensor:
    """Sequences B with A < 0 whose mean log pi_sampler - log pi is above `threshold`."""
    drift_B = batch.mean_B(batch.columns[SAMPLER] - batch.logp_BT.detach())
    dropped_B: Tensor = (batch.advantage_BT < 0).any(-1) & (drift_B > threshold)
    return dropped_B


def measured(columns: Mapping[str, Tensor], trainer: Tensor, mask: Tensor) -> MetricSums:
    """Mean difference of log-probabilities before the update, mean weight, and the share of tokens with weight 0.

    trainer: log-probabilities by the trainer, of the shape of the columns.
    """
    sums, tokens, weight = MetricSums(), mask.sum(), columns[WEIGHT]
    sums.add("rollout_corr/logp_difference", ((trainer - columns[SAMPLER]).abs() * mask).sum(), tokens)
    sums.add("rollout_corr/weight", (weight * mask).sum(), tokens)
    sums.add("rollout_corr/masked", ((weight == 0) & mask).sum(), tokens)
    return sums
