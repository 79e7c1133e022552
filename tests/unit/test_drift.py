"""The row of a gradient step: the histogram of d against a loop, and the rows of an update against its metrics."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mcpo_cli.backends import measure
from mcpo_cli.backends.measure import Sums
from mcpo_cli.methods import MiniBatch, TokenBatch, get

DELTA = 0.01


def tokens(d_BT: list[list[float]], mastered_B: list[bool], length_B: list[int]) -> TokenBatch:
    """Sequences whose log-probabilities lie `d_BT` above the anchor's."""
    d = torch.tensor(d_BT, dtype=torch.float64)
    mask_BT = torch.arange(d.shape[1]) < torch.tensor(length_B)[:, None]
    mastered = torch.tensor(mastered_B)
    total = MiniBatch(len(length_B), sum(length_B), int(mastered.sum()))
    zero_B = torch.zeros(len(length_B))
    return TokenBatch(d, torch.zeros_like(d), torch.zeros_like(d), mask_BT, zero_B, mastered, total)


def row(batch: TokenBatch, delta: float, parts: int = 1) -> list[int]:
    """d_counts, with the batch cut into `parts`."""
    sums = Sums()
    for index in torch.arange(len(batch.mask_BT)).tensor_split(parts):
        fields = {name: value[index] for name, value in vars(batch).items() if name != "total"}
        sums.merge(measure.drift(TokenBatch(**fields, total=batch.total), delta))
    assert sums.means() == {}
    return measure.mini_batch_row(1, 1, sums, get("mcpo", delta=delta), mastered=1, felt=1)["d_counts"]


def place(d: float, delta: float) -> int:
    """The bin of d: inner edges belong to a bin, on both sides of 0."""
    for i, (low, high) in enumerate(measure.drift_bins()):
        inside = low * delta < d <= high * delta if d > 0 else low * delta <= d < high * delta
        if inside or (d == 0 and low < 0 < high):
            return i
    raise AssertionError(d)


drifts = st.one_of(
    st.floats(-1, 1), st.sampled_from([sign * edge * DELTA for edge in measure.DRIFT_EDGES for sign in (-1, 1)])
)


@given(
    d_BT=st.lists(st.lists(drifts, min_size=4, max_size=4), min_size=1, max_size=5),
    mastered=st.lists(st.booleans(), min_size=5, max_size=5),
    length=st.lists(st.integers(1, 4), min_size=5, max_size=5),
    parts=st.integers(1, 3),
)
def test_histogram_against_a_loop(d_BT: list[list[float]], mastered: list[bool], length: list[int], parts: int) -> None:
    expected = [0] * len(measure.drift_bins())
    for d_T, is_mastered, n in zip(d_BT, mastered, length, strict=False):
        for d in d_T[:n] if is_mastered else ():
            expected[place(d, DELTA)] += 1
    batch = tokens(d_BT, mastered[: len(d_BT)], length[: len(d_BT)])
    assert row(batch, DELTA, parts) == expected


def test_without_a_budget_all_that_moved_is_beyond_every_edge() -> None:
    counts = row(tokens([[0.0, 1e-9, -3.0, 2.0]], [True], [4]), delta=0.0)
    assert (counts[0], counts[7], counts[-1], sum(counts)) == (1, 1, 2, 4)


def test_bins_are_symmetric_and_without_a_gap() -> None:
    bins = measure.drift_bins()
    assert (bins[0], bins[7], bins[-1]) == ((-math.inf, -32), (-0.5, 0.5), (32, math.inf))
    assert all(before[1] == after[0] for before, after in pairwise(bins))
    assert [(-high, -low) for low, high in reversed(bins)] == bins


def test_a_policy_that_is_the_anchor_has_all_tokens_in_the_middle() -> None:
    sums = measure.undrifted(5)
    counts = measure.mini_batch_row(1, 1, sums, get("mcpo"), mastered=1, felt=0)["d_counts"]
    assert (counts[7], sum(counts)) == (5, 5)


def test_a_method_without_a_hinge_has_a_loss_only() -> None:
    sums = Sums()
    sums.add("train/policy_loss", 0.25, 1.0)
    found = measure.mini_batch_row(3, 2, sums, get("dapo"), mastered=4, felt=0)
    assert found == pytest.approx({"step": 3, "mini_batch": 2, "policy_loss": 0.25})
