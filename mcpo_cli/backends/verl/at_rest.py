"""A batch before its first gradient step: the policy is the one that sampled, and its log-probabilities are known.

Shape suffixes: P prompts, G rollouts of each, T tokens; B = P x G sequences.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mcpo_cli.backends import measure, method_calls
from mcpo_cli.backends.measure import Sums
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.methods import AdvancedMethod, Method, MiniBatch, Signals, State, Step, TokenBatch


@dataclass(frozen=True)
class Said:
    """What a method says of a batch.

    signals: with the columns of `AdvancedMethod.prepare`. length_PG: tokens of each response. totals: of each
    mini-batch, which all have equally many prompts. has_gradient_PG: sequences with a gradient. at_rest: what the
    method reports of those of the first mini-batch that have none as the policy has not moved yet.
    """

    signals: Signals
    length_PG: Tensor
    totals: list[MiniBatch]
    has_gradient_PG: Tensor
    at_rest: Sums


def ask(spec: RunSpec, step: Step, state: State, logp_PGT: Callable[[], Tensor], seed: int) -> tuple[Said, State]:
    """What the method of `spec` says of the batch `step`, and its next state.

    logp_PGT: log-probabilities under the policy of now, for methods that look at them. seed: of `prepare`.
    """
    method, size = spec.method, spec.train.mini_batch
    signals, state = method_calls.signals(method, step, state)
    totals = [
        MiniBatch.of(step.length_PG[index_M], signals.map(operator.itemgetter(index_M)), step.limit)
        for index_M in torch.arange(len(step.length_PG)).split(size)
    ]
    if isinstance(method, AdvancedMethod) and method.prepares:
        (total,) = totals
        signals = prepared(method, step, signals, logp_PGT(), total, seed)
    has_gradient_PG, at_rest = screened(method, step, signals, logp_PGT, totals[0])
    return Said(signals, step.length_PG, totals, has_gradient_PG, at_rest), state


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


def prepared(
    method: AdvancedMethod, step: Step, signals: Signals, logp_PGT: Tensor, total: MiniBatch, seed: int
) -> Signals:
    """`signals` of a batch of one mini-batch, with the columns of `AdvancedMethod.prepare`."""
    batch = tokens(step, signals, logp_PGT, total)
    return signals.with_columns(method.prepare(batch, seed))


def screened(
    method: Method, step: Step, signals: Signals, logp_PGT: Callable[[], Tensor], first: MiniBatch
) -> tuple[Tensor, Sums]:
    """has_gradient_PG, and what the method reports of the sequences of the first mini-batch that have none on policy.

    first: totals of the first mini-batch. So rounding between two forward passes cannot pass for a drift.
    """
    # A method that compares with the policy before the last gradient step is not at rest: that one has moved already.
    has_gradient_PG = signals.has_gradient_PG.clone()
    if not isinstance(method, AdvancedMethod) or not method.screens or "previous_policy" in method.needs:
        return has_gradient_PG, Sums()
    screened_PG = signals.has_gradient_PG & (signals.advantage_PG == 0)
    screened_PG[first.prompts :] = False
    if not screened_PG.any():
        return has_gradient_PG, Sums()
    batch = tokens(step, signals, logp_PGT(), first).select(screened_PG.flatten())
    has_gradient_B = method.has_gradient(batch)
    has_gradient_PG[screened_PG] = has_gradient_B
    idle = batch.select(~has_gradient_B)
    return has_gradient_PG, measure.reported(method.report(idle), idle.group_B)
