"""A batch before its first gradient step: the policy is the one that sampled, and its log-probabilities are known.

Shape suffixes: P prompts, G rollouts of each, T tokens; B = P x G sequences.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from mcpo_cli.backends import measure
from mcpo_cli.backends.measure import Sums
from mcpo_cli.methods import Method, MiniBatch, Signals, Step, TokenBatch


def tokens(step: Step, signals: Signals, logp_PGT: Tensor, total: MiniBatch) -> TokenBatch:
    """All sequences of the batch; `total` is that of the mini-batch that is asked for."""
    logp_BT = logp_PGT.flatten(0, 1)
    flat = signals.map(lambda tensor: tensor.flatten(0, 1))
    return TokenBatch(
        logp_BT=logp_BT,
        logp_old_BT=logp_BT,
        mask_BT=step.mask_PGT.flatten(0, 1),
        advantage_BT=flat.advantage.view(len(logp_BT), -1),
        group_B=torch.arange(len(step.correct_PG)).repeat_interleave(step.correct_PG.shape[1]),
        total=total,
        columns=flat.columns,
    )


def prepared(method: Method, step: Step, signals: Signals, logp_PGT: Tensor, total: MiniBatch, seed: int) -> Signals:
    """`signals` of a batch of one mini-batch, with the columns of `Method.prepare`."""
    batch = tokens(step, signals, logp_PGT, total)
    return signals.with_columns(method.prepare(method.scores(batch), batch, seed))


def suspected(method: Method, signals: Signals, prompts: int) -> Tensor:
    """Which rollouts of the first mini-batch, of `prompts`, may bear nothing at rest although they do later, PG.

    None for a method that compares with the policy before the last gradient step: that one has moved already.
    """
    screens = method.screens and "previous_policy" not in method.needs
    suspected_PG = signals.bears_PG & (signals.advantage_PG == 0) & screens
    suspected_PG[prompts:] = False
    return suspected_PG


def screened(
    method: Method, step: Step, signals: Signals, logp_PGT: Callable[[], Tensor], first: MiniBatch
) -> tuple[Tensor, Sums]:
    """bears_PG, and what the method reports of the sequences of the first mini-batch that bear nothing at rest.

    first: totals of the first mini-batch. So rounding between two forward passes cannot pass for a drift.
    """
    bears_PG, screened_PG = signals.bears_PG.clone(), suspected(method, signals, first.prompts)
    if not screened_PG.any():
        return bears_PG, Sums()
    batch = tokens(step, signals, logp_PGT(), first).select(screened_PG.flatten())
    bears_B = method.bears(batch)
    bears_PG[screened_PG] = bears_B
    idle = batch.select(~bears_B)
    return bears_PG, measure.reported(method.report(idle), idle.group_B)
