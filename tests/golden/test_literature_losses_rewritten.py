"""Losses of the method zoo against released code that is not installed here, written again from its formulas.

Values and gradients on fixture F2, under drifts large enough that caps and limits act. `L` has the inputs of such code:
rectangles of log-probabilities, a mask, one advantage per sequence.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from mcpo_cli.methods import TokenBatch, get
from tests.golden.literature import f2, loss, numbers, prepared

WIDE = ((0.3, -1.4, 0.9), (1.6, 0.2, 0.0), (-0.8, 0.0, 0.0), (1.2, -0.05, 2.6))
"""Drifts; the last three sequences have tokens whose ratio is above 3 and 10."""
OLD = ((-0.5, -0.2, -2.1), (-3.3, -0.4, 0.0), (-1.0, 0.0, 0.0), (-4.0, -0.4, -3.5))


@dataclass(frozen=True)
class L:
    logp: Tensor
    old: Tensor
    mask: Tensor
    A: Tensor

    @property
    def d(self) -> Tensor:
        return self.logp - self.old

    @property
    def r(self) -> Tensor:
        return self.d.exp()

    def token_mean(self, value: Tensor) -> Tensor:
        return (value * self.mask).sum() / self.mask.sum()

    def sequence_mean(self, value: Tensor) -> Tensor:
        return (value * self.mask).sum(-1).div(self.mask.sum(-1)).mean()

    def sequence_sum(self, value: Tensor) -> Tensor:
        return (value * self.mask).sum(-1).mean()


def dual_clip(x: L, cap: float, low: float = 0.2, high: float = 0.2) -> Tensor:
    """verl, `compute_policy_loss_vanilla`: token losses."""
    first = torch.maximum(-x.A * x.r, -x.A * x.r.clamp(1 - low, 1 + high))
    return torch.where(x.A < 0, torch.min(-x.A * cap, first), first)


def ipo(x: L, limit: float) -> Tensor:
    """prime-rl's docs/ipo.md, token by token."""
    total = x.logp.new_zeros(())
    for b, t in x.mask.nonzero().tolist():
        p, q = x.logp[b, t].exp(), x.old[b, t].exp()
        if abs(float(p.detach()) - float(q)) <= limit:
            total = total - (p / q).detach() * x.A.expand_as(x.logp)[b, t] * x.logp[b, t]
    return total / x.mask.sum()


def topr(x: L, token: bool, *, summed: bool = True) -> Tensor:
    """ROLL, `_compute_topr_loss`; the paper's ratio is that of the sequence."""
    ratio = x.r if token else (x.d * x.mask).sum(-1, keepdim=True).exp()
    weight = torch.where(x.A > 0, torch.ones_like(x.d), ratio.clamp(0, 1).expand_as(x.d)).detach()
    return (x.sequence_sum if summed else x.sequence_mean)(-weight * x.A * x.logp)


def m2po(x: L, threshold: float) -> Tensor:
    """AReaL, `_get_m2po_loss_mask`, as a loop: drop the largest square until the mean of the rest is small enough."""
    squares = {(i, j): float(x.d.detach()[i, j] ** 2) for i, j in x.mask.nonzero().tolist()}
    while len(squares) > 1 and sum(squares.values()) / len(squares) >= threshold:
        del squares[max(squares, key=lambda place: squares[place])]
    kept = torch.zeros_like(x.d)
    for place in squares:
        kept[place] = 1
    return x.token_mean(-x.r * x.A * kept)


def fipo(x: L, both_ways: bool, safety: float, half_life: float = 32.0, cap: float = 10.0) -> Tensor:
    """ms-swift, `_compute_fipo_influence` and `loss_type=fipo`; Future-KL as a loop."""
    f = torch.ones_like(x.d)
    for i, j in x.mask.nonzero().tolist():
        later = range(j, int(x.mask[i].sum()))
        future = sum(
            2 ** (-(k - j) / half_life) * float(x.d.detach()[i, k]) for k in later if float(x.r.detach()[i, k]) <= cap
        )
        f[i, j] = min(max(math.exp(future), 0.8 if both_ways else 1.0), 1.2)
        if float(x.A[i]) < 0 and float(x.r.detach()[i, j]) > safety:
            f[i, j] = min(max(float(f[i, j]), 0.8), 1.0)
    return x.token_mean(dual_clip(x, cap, high=0.28) * f)


def real(x: L, groups: list[list[int]], tau: float = 0.5) -> Tensor:
    """ms-swift, `loss_type=real`: groups of one label count in the mean and have no loss."""
    score, total = (x.d * x.mask).sum(-1) / x.mask.sum(-1) / tau, x.d.sum() * 0
    for group in groups:
        right = [i for i in group if float(x.A[i]) > 0]
        wrong = [i for i in group if float(x.A[i]) <= 0]
        if right and wrong:
            total = total + torch.log(1 + (-score[right]).exp().sum()) + torch.log(1 + score[wrong].exp().sum())
    return total / len(groups)


def given(advantage: tuple[float, ...], group: tuple[int, ...] = (0, 0, 0, 0)) -> TokenBatch:
    batch = f2(WIDE, advantage, group)
    old_BT = torch.tensor(OLD, dtype=torch.float64)
    logp_BT = (old_BT + torch.tensor(WIDE, dtype=torch.float64)) * batch.mask_BT
    return batch.replace(logp_old_BT=old_BT * batch.mask_BT, logp_BT=logp_BT.requires_grad_())


def rewritten(batch: TokenBatch, function: Callable[[L], Tensor]) -> list[float]:
    """As `tests.golden.literature.loss`."""
    return numbers(function(L(batch.logp_BT, batch.logp_old_BT, batch.mask_BT.double(), batch.advantage_BT)), batch)


LOSSES: list[tuple[str, dict[str, Any], Callable[[L], Tensor]]] = [
    ("dual_clip", {}, lambda x: x.sequence_mean(dual_clip(x, 3.0))),
    ("dual_clip", {"cap": 12.0, "aggregation": "token-mean"}, lambda x: x.token_mean(dual_clip(x, 12.0))),
    ("ipo", {}, lambda x: ipo(x, 0.3)),
    ("ipo", {"limit": 0.05}, lambda x: ipo(x, 0.05)),
    ("topr", {}, lambda x: topr(x, token=False)),
    ("topr", {"ratio": "token"}, lambda x: topr(x, token=True)),
    ("topr", {"ratio": "token", "aggregation": "seq-mean-token-mean"}, lambda x: topr(x, token=True, summed=False)),
    ("m2po", {}, lambda x: m2po(x, 0.04)),
    ("m2po", {"threshold": 0.6}, lambda x: m2po(x, 0.6)),
    ("m2po", {"threshold": 1e-9}, lambda x: m2po(x, 1e-9)),
    ("fipo", {}, lambda x: fipo(x, both_ways=False, safety=4.0)),
    ("fipo", {"both_ways": True, "safety": 3.0}, lambda x: fipo(x, both_ways=True, safety=3.0)),
    ("fipo", {"both_ways": True, "half_life": 1.0}, lambda x: fipo(x, both_ways=True, safety=4.0, half_life=1.0)),
]


@pytest.mark.parametrize(("name", "options", "function"), LOSSES, ids=lambda of: "" if callable(of) else str(of)[:40])
@pytest.mark.parametrize("advantage", [(1.0, -1.0, 0.5, -0.5), (-0.7, 0.3, -1.2, 0.9)])
def test_value_and_gradient(
    name: str, options: dict[str, Any], function: Callable[[L], Tensor], advantage: tuple[float, ...]
) -> None:
    batch = given(advantage)
    assert loss(get(name, **options), batch) == pytest.approx(rewritten(batch, function), abs=1e-9)


@pytest.mark.parametrize("group", [(0, 0, 0, 0), (0, 0, 1, 1), (0, 1, 1, 1)])
def test_real_classifies_within_each_group(group: tuple[int, ...]) -> None:
    """Rollouts 0 and 2 are correct; where a group is a rollout, its advantage is 0."""
    groups = [[i for i in range(4) if group[i] == number] for number in sorted(set(group))]
    right, A = (True, False, True, False), [0.0] * 4
    for members in groups:
        mixed = len({right[i] for i in members}) > 1
        for i in members:
            # As `signals` has it for a group of these rollouts, times the share of B that one of G takes of P.
            same = sum(right[j] == right[i] for j in members)
            A[i] = mixed * (1 if right[i] else -1) * 4 / len(groups) / (0.5 * (1 + same))
    batch = given(tuple(A), group)
    expected = rewritten(batch, lambda x: real(x, groups))
    assert loss(get("real"), batch) == pytest.approx(expected, abs=1e-9)
    assert [bool(g) for g in expected[1:4]] == [len(groups[0]) > 1] * 3


def test_every_cap_and_limit_acts_somewhere() -> None:
    """Otherwise the comparisons above would not test them."""
    flat = {
        name: [g == 0 for g in loss(get(name, **options), given((1.0, -1.0, 0.5, -0.5)))[1:]]
        for name, options, _ in LOSSES
        if name in ("dual_clip", "ipo", "m2po", "fipo")
    }
    assert all(any(zero) and not all(zero) for zero in flat.values())
    kept_BT = prepared(get("m2po", threshold=1e-9), given((1.0, -1.0, 0.5, -0.5))).columns["kept"]
    assert kept_BT.sum() == 1
