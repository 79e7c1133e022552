"""Shared by the tests of the method zoo: fixtures F1 and F2, and functions from worked numbers to rows of numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from mcpo_cli.methods import Method, MiniBatch, Signals, State, Step, TokenBatch, reduce

F1 = ((1, 0, 0, 0), (1, 1, 1, 0), (1, 1, 1, 1), (0, 0, 0, 0))
LENGTH = ((2, 4, 3, 1), (1, 2, 3, 4), (2, 2, 2, 2), (4, 3, 2, 1))
LOGP = ((-1, -0.5, -0.8, -0.2), (-0.3, -0.9, -0.6, -0.4), (-0.1, -0.4, -0.2, -0.3), (-1, -1.1, -1.2, -1.3))
ANSWER = ((7, 3, 3, 5), (2, 2, 2, 9), (4, 4, 4, 4), (1, 1, 6, 8))

ADVANTAGE = (1.0, -1.0, 0.5, -0.5)
DRIFT = ((0.10, -0.30, 0.40), (0.25, 0.05, 0.0), (-0.50, 0.0, 0.0), (0.02, -0.15, 0.30))
OLD = ((-0.5, -1.2, -0.9), (-0.3, -2.0, 0.0), (-1.0, 0.0, 0.0), (-0.7, -0.1, -1.5))
TOKENS = (3, 2, 1, 3)
LIMIT = 8


def near(expected: Any) -> Any:
    """Equal to six digits, as numbers are worked out here."""
    return pytest.approx(expected, abs=1e-6)


def step(
    correct: Sequence[Sequence[float]] = F1, reward: Sequence[Sequence[float]] | None = None, **fields: Any
) -> Step:
    """Groups of rollouts; by default the reward is correctness."""
    correct_PG = torch.tensor(correct)
    shape = correct_PG.shape
    return Step(
        reward_PG=torch.tensor(correct if reward is None else reward, dtype=torch.float64),
        correct_PG=correct_PG == 1,
        length_PG=fields.pop("length_PG", torch.full(shape, 2)),
        prompt_P=fields.pop("prompt_P", torch.arange(shape[0])),
        max_response=LIMIT,
        **fields,
    )


def f1(**fields: Any) -> Step:
    """F1 with lengths, log-probabilities (each token has its sequence's mean) and answers."""
    length_PG, logp_PG1 = torch.tensor(LENGTH), torch.tensor(LOGP, dtype=torch.float64)[..., None]
    mask_PGT = torch.arange(4) < length_PG[..., None]
    return step(length_PG=length_PG, logp_PGT=logp_PG1 * mask_PGT, answer_PG=torch.tensor(ANSWER), **fields)


def signals(method: Method, of: Step | None = None, state: State | None = None) -> Signals:
    """The signals of one step, by default F1."""
    return method.signals(of or f1(), state or {})[0]


def advantages(method: Method, of: Step | None = None) -> list[list[float]]:
    """advantage_PG of one step, by default F1."""
    rows: list[list[float]] = signals(method, of).advantage.tolist()
    return rows


def f2(
    drift: Sequence[Sequence[float]] = DRIFT,
    advantage: Sequence[float] = ADVANTAGE,
    group: Sequence[int] = (0, 0, 0, 0),
    columns: Mapping[str, Sequence[float]] | None = None,
) -> TokenBatch:
    """F2, a whole mini-batch of four sequences with nine tokens; its log-probabilities require a gradient."""
    length_B, old_BT = torch.tensor(TOKENS), torch.tensor(OLD, dtype=torch.float64)
    given = {name: torch.tensor(column, dtype=torch.float64) for name, column in (columns or {}).items()}
    return TokenBatch(
        logp_BT=(old_BT + torch.tensor(drift, dtype=torch.float64)).requires_grad_(),
        logp_old_BT=old_BT,
        mask_BT=torch.arange(3) < length_B[:, None],
        advantage_BT=torch.tensor(advantage, dtype=torch.float64)[:, None],
        group_B=torch.tensor(group),
        total=MiniBatch(4, 9, len(set(group)), LIMIT, {name: float(column.sum()) for name, column in given.items()}),
        columns=given,
    )


def prepared(method: Method, batch: TokenBatch, seed: int = 0) -> TokenBatch:
    """`batch` with the columns of `prepare`, as backends add them."""
    found = method.prepare(batch.replace(logp_BT=batch.logp_BT.detach()), seed)
    return batch.replace(columns={**batch.columns, **found})


def loss(method: Method, batch: TokenBatch | None = None) -> list[float]:
    """The loss of `batch` (F2) and its gradient, as in `numbers`; columns that are prepared already stay."""
    batch = batch or f2()
    if method.prepares and not batch.columns.keys() >= set(method.token_columns):
        batch = prepared(method, batch)
    return numbers(reduce(method.token_loss(batch), batch.mask_BT), batch)


def numbers(value: Tensor, batch: TokenBatch) -> list[float]:
    """A loss, and its gradient with respect to log pi on the real tokens in reading order; padding has none."""
    (gradient_BT,) = torch.autograd.grad(value, batch.logp_BT)
    assert not gradient_BT[~batch.mask_BT].any()
    return [float(value.detach()), *gradient_BT[batch.mask_BT].tolist()]
