"""Rank correlations: against scipy and all orders, refusals, and the rate of false findings."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from mcpo_cli.statistics import ranks
from mcpo_cli.statistics.ranks import Correlation


def two_sided(found: Correlation) -> float:
    return min(1.0, 2 * min(found.p_above, found.p_below))


@pytest.mark.parametrize("seed", range(5))
def test_ten_and_more_values_have_spearmans_correlation_and_its_p(seed: int) -> None:
    x, y = np.random.default_rng(seed).normal(size=(2, 20)).round(1)
    y = y + 0.5 * x
    found = ranks.correlation(x, y)
    expected = scipy_stats.spearmanr(x, y, alternative="greater")
    assert found.mean == pytest.approx(expected.statistic)
    assert found.p_above == pytest.approx(expected.pvalue)
    assert found.p_below == pytest.approx(1 - expected.pvalue)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=6))
def test_fewer_values_have_the_share_of_all_orders_ties_included(points: list[tuple[int, int]]) -> None:
    x, y = np.array(points).T
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return
    found = ranks.correlation(x, y)
    assert found.mean == pytest.approx(scipy_stats.spearmanr(x, y).statistic)
    # Spearman's correlation is Pearson's of the ranks.
    rank_ON = scipy_stats.rankdata(y)[list(itertools.permutations(range(len(y))))]
    rho_O = scipy_stats.pearsonr(scipy_stats.rankdata(x), rank_ON, axis=-1).statistic
    assert found.p_above == pytest.approx((rho_O >= found.mean - 1e-9).mean())
    assert found.p_below == pytest.approx((rho_O <= found.mean + 1e-9).mean())
    assert math.isnan(found.low)


def test_few_values_in_clusters_are_compared_with_orders_within_these() -> None:
    """Two clusters of three values in order, of 3! x 3! orders: p is 1/36 for any distance between the clusters."""
    for shift in (-10, 0.5, 10):
        y = [1, 2, 3, 1 + shift, 2 + shift, 3 + shift]
        found = ranks.correlation([1, 2, 3, 11, 12, 13], y, ["a", "a", "a", "b", "b", "b"])
        assert (found.p_above, found.p_below) == (pytest.approx(1 / 36), 1)


@pytest.mark.slow
def test_effects_of_few_clusters_are_no_correlation() -> None:
    """Two clusters of four values with different effects and different places: level .05."""
    rng, cluster = np.random.default_rng(0), np.repeat([0, 1], 4)
    found = []
    for _ in range(2000):
        x, y = 3 * cluster + rng.normal(size=8), 3 * rng.normal(size=2)[cluster] + rng.normal(size=8)
        found.append(two_sided(ranks.correlation(x, y, cluster)) <= 0.05)
    assert np.mean(found) <= 0.055


@pytest.mark.parametrize("n", [3, 4])
def test_three_or_four_values_in_perfect_order_are_not_significant(n: int) -> None:
    found = ranks.correlation(range(n), range(n))
    assert found.mean == pytest.approx(1)
    assert two_sided(found) == pytest.approx(2 / math.factorial(n))
    assert two_sided(found) > 0.05


@given(st.integers(0, 2**32 - 1), st.integers(10, 40), st.floats(-30, 30), st.booleans())
def test_an_interval_holds_the_correlation_and_stays_within_one(seed: int, n: int, pull: float, grouped: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    found = ranks.correlation(x, pull * x + rng.normal(size=n), np.arange(n) // 3 if grouped else None)
    assert -1 <= found.low <= found.mean <= found.high <= 1


@pytest.mark.parametrize(
    ("x", "y", "why"),
    [
        ([1, 1, 1, 1], [1, 2, 3, 4], "all are equal"),
        ([1, 2, 3, 4], [5, 5, 5, 5], "all are equal"),
        ([1, 2, 3, 4], [1, 2, math.nan, 4], "NaN"),
        ([1, 2], [1, 2], "at least 3"),
        ([1, 2, 3], [1, 2], "one length"),
    ],
)
def test_what_has_no_correlation_is_refused(x: list[float], y: list[float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ranks.correlation(x, y)


def test_what_lies_between_clusters_alone_is_seen_between_them_and_not_within() -> None:
    """Eight clusters of six values: x and y rise from cluster to cluster and are unrelated within."""
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(8), 6)
    x, y = (cluster + 0.4 * rng.normal(size=48) for _ in range(2))
    between = ranks.correlation(x, y, cluster)
    assert between.mean > 0.9
    assert between.p_within > 0.1
    within = ranks.correlation(rng.permutation(8)[cluster] + x - cluster, x - cluster, cluster)
    assert within.p_within < 0.01


@pytest.mark.parametrize("seed", [1, 2])
def test_p_within_clusters_counts_orders_within_each_of_them(seed: int) -> None:
    """Four values far apart and eight close together: what changes places with the other cluster's is seen at once."""
    rng, cluster = np.random.default_rng(seed), np.repeat([0, 1], [4, 8])
    x = np.concatenate([[0, 30, 60, 90], np.arange(40, 48)])
    y = np.concatenate([rng.permutation(x[:4]), rng.permutation(x[4:])])
    own_x, own_y = (
        np.concatenate([rank[:4] - rank[:4].mean(), rank[4:] - rank[4:].mean()])
        for rank in map(scipy_stats.rankdata, (x, y))
    )
    first = own_y[:4][list(itertools.permutations(range(4)))] @ own_x[:4]
    second = np.array([rng.permutation(own_y[4:]) for _ in range(2000)]) @ own_x[4:]
    expected = np.mean(np.abs(first[:, None] + second) >= abs(own_x @ own_y) - 1e-9)
    assert ranks.correlation(x, y, cluster).p_within == pytest.approx(expected, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 7, 10, 16])
def test_without_a_correlation_one_is_found_in_at_most_a_twentieth_of_the_cases(n: int) -> None:
    rng = np.random.default_rng(n)
    found = [two_sided(ranks.correlation(*rng.normal(size=(2, n)))) <= 0.05 for _ in range(4000)]
    assert np.mean(found) <= 0.055


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 16, 40])
def test_intervals_of_a_correlation_cover_what_they_promise(n: int) -> None:
    """Of normal values with Pearson correlation .6, whose rank correlation is 6 / pi asin(.3)."""
    rng, truth = np.random.default_rng(n), 6 / math.pi * math.asin(0.3)
    found = [ranks.correlation(x, 0.6 * x + 0.8 * y) for x, y in rng.normal(size=(2000, 2, n))]
    assert 0.93 <= np.mean([one.low <= truth <= one.high for one in found]) <= 0.98
