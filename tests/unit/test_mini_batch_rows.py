"""The row of a gradient step: how sums of its parts become one row."""

import math

import pytest
import torch
from torch import Tensor

from mcpo_cli.backends import measure
from mcpo_cli.backends.measure import MetricSums
from mcpo_cli.methods import MiniBatch, Report, Term, TokenBatch, TokenLoss, get


def tokens(d_BT: list[list[float]], mastered_B: list[bool], length_B: list[int]) -> TokenBatch:
    """Sequences, one per prompt, whose log-probabilities are `d_BT` above the anchor's."""
    d = torch.tensor(d_BT, dtype=torch.float64)
    mask_BT = torch.arange(d.shape[1]) < torch.tensor(length_B)[:, None]
    mastered = torch.tensor(mastered_B)
    B = len(length_B)
    return TokenBatch(
        logp_BT=d.where(mask_BT, 0.0),
        logp_old_BT=torch.zeros_like(d),
        mask_BT=mask_BT,
        advantage_BT=torch.zeros(B, 1),
        group_B=torch.arange(B),
        total=MiniBatch(B, sum(length_B), B, 4, {"mastered": float(mastered.sum())}),
        columns={"mastered": mastered},
    )


def test_a_method_without_a_hinge_has_one_loss() -> None:
    """A ratio of e^0.5 with advantage 1, clipped at 1.28; d = -0.25 with advantage 0 has no gradient."""
    batch = tokens([[0.5], [-0.25]], [True, True], [1, 1])
    batch = batch.replace(advantage_BT=torch.tensor([[1.0], [0.0]]))
    method = get("dapo")
    sums = measure.losses(method.token_loss(batch), batch.mask_BT)
    sums.merge(measure.reported(method.report(batch), batch.group_B))
    row = measure.mini_batch_row(3, 2, sums)
    assert (row["step"], row["mini_batch"]) == (3, 2)
    assert row["sums"] == {
        "train/policy_loss": [pytest.approx(-1.28 / 2), 1],
        "train/clip_high": [1, 1],
        "train/clip_low": [0, 1],
        "train/approx_kl": [pytest.approx(math.exp(0.5) - 1.5), 1],
    }


def part(value: float, prompts: dict[str, tuple[list[bool], list[bool]]], group_B: list[int]) -> MetricSums:
    """The sums of one micro-batch: a loss term of this value, a mean, and shares of prompts."""

    def flags(found: list[bool]) -> Tensor:
        return torch.tensor(found)

    loss = TokenLoss((Term("policy", torch.tensor([[value]]), torch.tensor([1.0])),))
    sums = measure.losses(loss, torch.ones(1, 1, dtype=torch.bool))
    sides = {name: (flags(flagged), flags(among)) for name, (flagged, among) in prompts.items()}
    report = Report({"x/mean": (torch.tensor(value), torch.tensor(2.0))}, sides)
    sums.merge(measure.reported(report, torch.tensor(group_B)))
    return sums


def test_a_prompt_counts_once_however_its_rollouts_are_spread() -> None:
    """Prompt 3 is flagged in both parts, 4 in none; losses add up, and are one value of one mini-batch."""
    sums = part(0.25, {"x/felt": ([True, False], [True, True])}, [3, 4])
    sums.merge(part(0.5, {"x/felt": ([True, False], [True, False])}, [3, 5]))
    row = measure.mini_batch_row(1, 1, sums)
    assert row["sums"] == {"train/policy_loss": [0.75, 1], "x/mean": [0.75, 4], "x/felt": [1, 2]}
    # The step's loss is the mean of its mini-batches' losses, not of their parts.
    step, second = MetricSums(), part(0.25, {}, [])
    second.close()
    for own in (sums, second):
        step.merge(own)
    assert step.means() == {"train/policy_loss": 0.5, "x/mean": pytest.approx(1 / 6), "x/felt": 0.5}
