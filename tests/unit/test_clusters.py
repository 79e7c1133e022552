"""Means and slopes of values in clusters: by hand, by matrices, and the coverage of intervals from few clusters."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from mcpo_cli.statistics import clusters


@given(st.integers(0, 2**32 - 1), st.integers(3, 6))
def test_cluster_mean_is_a_regression_on_a_constant_with_a_sandwich(seed: int, count: int) -> None:
    """CR2 in matrices: B (sum_c s_c s_c') B with s_c = X_c' (I - H_cc)^(-1/2) e_c, X the root of the weights."""
    rng = np.random.default_rng(seed)
    cluster = np.concatenate([np.arange(count), rng.integers(count, size=20)])
    value, weight = rng.normal(size=cluster.size), rng.uniform(0.1, 5, cluster.size)
    X, y = np.sqrt(weight)[:, None], np.sqrt(weight) * value
    bread = np.linalg.inv(X.T @ X)
    error, meat = y - X @ bread @ X.T @ y, np.zeros((1, 1))
    for c in range(count):
        X_c = X[cluster == c]
        values, vectors = np.linalg.eigh(np.eye(len(X_c)) - X_c @ bread @ X_c.T)
        score = X_c.T @ (vectors / np.sqrt(values)) @ vectors.T @ error[cluster == c]
        meat += np.outer(score, score)
    share = [weight[cluster == c].sum() / weight.sum() for c in range(count)]
    quantile = scipy_stats.t.ppf(0.95, 1 / sum(h * h for h in share) - 1)
    ours = clusters.mean(value, weight, cluster).interval(0.9)
    assert ours.mean == pytest.approx((bread @ X.T @ y).item())
    assert ours.half_width == pytest.approx(quantile * math.sqrt((bread @ meat @ bread).item()), rel=1e-9)


def test_what_has_no_weight_does_not_count() -> None:
    some = clusters.mean([1.0, 2.0, 4.0, math.nan, 5.0], [1, 2, 1, 0, 0], [0, 1, 3, 1, 2]).interval()
    assert some == clusters.mean([1.0, 2.0, 4.0], [1, 2, 1], [0, 1, 3]).interval()


@pytest.mark.parametrize("cluster", [[7, 7], [7, 8]])
def test_two_clusters_have_a_mean_but_no_interval(cluster: list[int]) -> None:
    interval = clusters.mean([1.0, 2.0], [1, 3], cluster).interval()
    assert (interval.mean, interval.n) == (1.75, len(set(cluster)))
    assert math.isnan(interval.half_width)


@pytest.mark.parametrize(
    ("value", "weight", "cluster"),
    [
        ([], [], []),
        ([1.0], [0.0], [1]),
        ([1.0, 2.0], [1.0, -1.0], [1, 2]),
        ([math.nan], [1.0], [1]),
        ([1.0], [math.nan], [1]),
        ([1.0, 2.0], [1.0], [1, 2]),
    ],
)
def test_cluster_mean_refuses_what_has_no_mean(value: list[float], weight: list[float], cluster: list[int]) -> None:
    with pytest.raises(ValueError, match="must"):
        clusters.mean(value, weight, cluster).interval()


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.5, 2.0], ids=["small effects", "large effects"])
@pytest.mark.parametrize("count", [4, 8])
def test_the_mean_of_few_clusters_with_effects_of_their_own_covers_what_it_promises(count: int, ratio: float) -> None:
    """Clusters of 2 to 9 values that share an effect of `ratio` times a value's standard deviation: 95 % nominal."""
    rng, covered, runs = np.random.default_rng(count), 0, 4000
    for _ in range(runs):
        cluster = np.repeat(np.arange(count), rng.integers(2, 10, size=count))
        value = ratio * rng.normal(size=count)[cluster] + rng.normal(size=cluster.size)
        interval = clusters.mean(value, np.ones(cluster.size), cluster).interval()
        covered += interval.low <= 0 <= interval.high
    assert 0.93 <= covered / runs <= 0.97
