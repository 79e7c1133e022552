"""The row of a gradient step: the histogram of d against a loop, and how sums of its parts become one row."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mcpo_cli.backends import measure
from mcpo_cli.backends.measure import MetricSums
from mcpo_cli.methods import MiniBatch, Report, Term, TokenBatch, TokenLoss, get
from mcpo_cli.methods.mcpo import DRIFT_EDGES, drift_bins, drift_names

DELTA = 0.01


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


def counts_of(batch: TokenBatch, delta: float, parts: int = 1) -> list[float]:
    """The histogram of the row, with the batch cut into `parts`."""
    sums, method = MetricSums(), get("mcpo", delta=delta)
    for index in torch.arange(len(batch.mask_BT)).tensor_split(parts):
        part = batch.select(index)
        sums.merge(measure.reported(method.report(part), part.group_B))
    row = measure.mini_batch_row(1, 1, sums)
    # Counts are of a mini-batch: they have no mean over a global step.
    assert not set(drift_names()) & sums.means().keys()
    pairs = [row["sums"][name] for name in drift_names()]
    assert all(denominator == 0 for _, denominator in pairs)
    return [count for count, _ in pairs]


def place(d: float, delta: float) -> int:
    """The bin of d: inner edges belong to a bin, on both sides of 0."""
    for i, (low, high) in enumerate(drift_bins()):
        inside = low * delta < d <= high * delta if d > 0 else low * delta <= d < high * delta
        if inside or (d == 0 and low < 0 < high):
            return i
    raise AssertionError(d)


drifts = st.one_of(st.floats(-1, 1), st.sampled_from([sign * edge * DELTA for edge in DRIFT_EDGES for sign in (-1, 1)]))


@given(
    d_BT=st.lists(st.lists(drifts, min_size=4, max_size=4), min_size=1, max_size=5),
    mastered=st.lists(st.booleans(), min_size=5, max_size=5),
    length=st.lists(st.integers(1, 4), min_size=5, max_size=5),
    parts=st.integers(1, 3),
)
def test_histogram_against_a_loop(d_BT: list[list[float]], mastered: list[bool], length: list[int], parts: int) -> None:
    expected = [0] * len(drift_bins())
    for d_T, is_mastered, n in zip(d_BT, mastered, length, strict=False):
        for d in d_T[:n] if is_mastered else ():
            expected[place(d, DELTA)] += 1
    batch = tokens(d_BT, mastered[: len(d_BT)], length[: len(d_BT)])
    assert counts_of(batch, DELTA, parts) == expected


def test_without_a_budget_all_that_moved_is_beyond_every_edge() -> None:
    counts = counts_of(tokens([[0.0, 1e-9, -3.0, 2.0]], [True], [4]), delta=0.0)
    assert (counts[0], counts[7], counts[-1], sum(counts)) == (1, 1, 2, 4)


def test_bins_are_symmetric_and_without_a_gap() -> None:
    bins = drift_bins()
    assert (bins[0], bins[7], bins[-1]) == ((-math.inf, -32), (-0.5, 0.5), (32, math.inf))
    assert [high for _, high in bins[7:-1]] == [0.5, 1, 2, 4, 8, 16, 32]
    assert all(before[1] == after[0] for before, after in pairwise(bins))
    assert [(-high, -low) for low, high in reversed(bins)] == bins
    assert len(drift_names()) == len(set(drift_names())) == len(bins)


def test_a_policy_that_is_the_anchor_has_all_tokens_in_the_middle() -> None:
    counts = counts_of(tokens([[0.0] * 4, [0.0] * 4], [True, True], [4, 1]), DELTA)
    assert (counts[7], sum(counts)) == (5, 5)


def test_a_method_without_a_hinge_has_one_loss_and_no_histogram() -> None:
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
