"""Means over dependent values, survival and time factors: by hand, by independent formulas, and their coverage."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from mcpo_cli.statistics import curves
from mcpo_cli.statistics.stats import t_interval


def test_cluster_mean_by_hand() -> None:
    """Mean (2 + 4 + 3) / 4 = 9/4; residual totals -5/2, 7/4, 3/4 and shares of the weight 1/2, 1/4, 1/4."""
    interval = curves.cluster_mean([1.0, 4.0, 3.0], [2, 1, 1], ["a", "b", "c"])
    assert (interval.mean, interval.n) == (2.25, 3)
    variance = (2.5**2 / 0.5 + 1.75**2 / 0.75 + 0.75**2 / 0.75) / 16
    quantile = scipy_stats.t.ppf(0.975, 8 / 3 - 1)
    assert interval.half_width == pytest.approx(quantile * math.sqrt(variance), rel=1e-6)


def test_cluster_mean_of_single_values_with_one_weight_is_the_t_interval() -> None:
    data = [0.41, 0.39, 0.48, 0.44, 0.40]
    ours, plain = curves.cluster_mean(data, [3.0] * 5, range(5), level=0.9), t_interval(data, level=0.9)
    assert (ours.low, ours.high, ours.n) == pytest.approx((plain.low, plain.high, plain.n))


@given(st.integers(0, 2**32 - 1), st.integers(3, 6))
def test_cluster_mean_is_a_regression_on_a_constant_with_a_sandwich(seed: int, clusters: int) -> None:
    """CR2 in matrices: B (sum_c s_c s_c') B with s_c = X_c' (I - H_cc)^(-1/2) e_c, X the root of the weights."""
    rng = np.random.default_rng(seed)
    cluster = np.concatenate([np.arange(clusters), rng.integers(clusters, size=20)])
    value, weight = rng.normal(size=cluster.size), rng.uniform(0.1, 5, cluster.size)
    X, y = np.sqrt(weight)[:, None], np.sqrt(weight) * value
    bread = np.linalg.inv(X.T @ X)
    error, meat = y - X @ bread @ X.T @ y, np.zeros((1, 1))
    for c in range(clusters):
        X_c = X[cluster == c]
        values, vectors = np.linalg.eigh(np.eye(len(X_c)) - X_c @ bread @ X_c.T)
        score = X_c.T @ (vectors / np.sqrt(values)) @ vectors.T @ error[cluster == c]
        meat += np.outer(score, score)
    share = [weight[cluster == c].sum() / weight.sum() for c in range(clusters)]
    quantile = scipy_stats.t.ppf(0.95, 1 / sum(h * h for h in share) - 1)
    ours = curves.cluster_mean(value, weight, cluster, level=0.9)
    assert ours.mean == pytest.approx((bread @ X.T @ y).item())
    assert ours.half_width == pytest.approx(quantile * math.sqrt((bread @ meat @ bread).item()), rel=1e-6)


@pytest.mark.parametrize("own", [0.0, 0.03], ids=["one error a step", "errors of step and prompt"])
@pytest.mark.parametrize("clusters", [12, 40])
def test_cluster_mean_covers_what_it_promises(clusters: int, own: float) -> None:
    """Steps of 1 to 30 prompts whose gaps share the step's error: 95 % nominal."""
    rng, covered, runs = np.random.default_rng(0), 0, 2000
    for _ in range(runs):
        step = np.repeat(np.arange(clusters), rng.integers(1, 31, size=clusters))
        gap = 0.02 + 0.03 * rng.normal(size=clusters)[step] + own * rng.normal(size=step.size)
        interval = curves.cluster_mean(gap, np.ones(step.size), step)
        covered += interval.low <= 0.02 <= interval.high
    assert 0.93 <= covered / runs <= 0.97


@pytest.mark.parametrize(("correlation", "low", "high"), [(0.0, 0.93, 0.97), (0.3, 0.82, 0.89), (0.6, 0.62, 0.72)])
def test_cluster_mean_covers_less_where_steps_depend_on_each_other(correlation: float, low: float, high: float) -> None:
    """As its docstring says: 20 steps whose values follow an autoregression of order 1."""
    rng = np.random.default_rng(1)
    value_NC = rng.normal(size=(800, 20))
    for step in range(1, 20):
        value_NC[:, step] = correlation * value_NC[:, step - 1] + math.sqrt(1 - correlation**2) * value_NC[:, step]
    found = [curves.cluster_mean(value_C, np.ones(20), range(20)) for value_C in value_NC]
    assert low <= np.mean([one.low <= 0 <= one.high for one in found]) <= high


def test_what_has_no_weight_does_not_count() -> None:
    some = curves.cluster_mean([1.0, 2.0, 4.0, math.nan, 5.0], [1, 2, 1, 0, 0], [0, 1, 3, 1, 2])
    assert some == curves.cluster_mean([1.0, 2.0, 4.0], [1, 2, 1], [0, 1, 3])


@pytest.mark.parametrize("cluster", [[7, 7], [7, 8]])
def test_two_clusters_have_a_mean_but_no_interval(cluster: list[int]) -> None:
    interval = curves.cluster_mean([1.0, 2.0], [1, 3], cluster)
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
        curves.cluster_mean(value, weight, cluster)


def test_survival_by_hand() -> None:
    """6 at risk: 1 of 6 ends at 1, 1 of 5 at 2 (another leaves), 1 of 3 at 3, none at 4, the last one at 5."""
    found = curves.survival([1, 2, 2, 3, 4, 5], [True, True, False, True, False, True])
    assert found.time_T.tolist() == [1, 2, 3, 4, 5]
    assert found.share_T == pytest.approx([5 / 6, 5 / 6 * 4 / 5, 4 / 9, 4 / 9, 0])
    # Exponential Greenwood at t = 2: s^exp(-+ z sqrt(1/(6*5) + 1/(5*4)) / log s).
    error = 1.959964 * math.sqrt(1 / 30 + 1 / 20) / math.log(2 / 3)
    assert found.low_T[1] == pytest.approx((2 / 3) ** math.exp(-error), rel=1e-6)
    assert found.high_T[1] == pytest.approx((2 / 3) ** math.exp(error), rel=1e-6)
    assert np.isnan([found.low_T[-1], found.high_T[-1]]).all()


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=25))
def test_survival_is_the_product_over_those_at_risk(observations: list[tuple[int, bool]]) -> None:
    found = curves.survival(*zip(*observations, strict=True))
    assert found.time_T.tolist() == sorted({duration for duration, _ in observations})
    for time, share, low, high in zip(found.time_T, found.share_T, found.low_T, found.high_T, strict=True):
        left = 1.0
        for t in range(1, int(time) + 1):
            at_risk = sum(duration >= t for duration, _ in observations)
            ended = sum(duration == t and seen for duration, seen in observations)
            left *= 1 - ended / at_risk
        assert share == pytest.approx(left, abs=1e-12)
        assert math.isnan(low) or 0 <= low <= share <= high <= 1


@pytest.mark.parametrize(
    ("duration", "observed"), [([], []), ([1.0], [True, False]), ([math.nan], [True]), ([math.inf], [False])]
)
def test_survival_refuses_what_is_no_duration(duration: list[float], observed: list[bool]) -> None:
    with pytest.raises(ValueError, match="durations must"):
        curves.survival(duration, observed)


def test_survival_covers_what_it_promises() -> None:
    """60 geometric durations, some of them cut off: 95 % nominal where a part of them is left."""
    rng, runs = np.random.default_rng(0), 600
    covered = []
    for _ in range(runs):
        duration, cut = rng.geometric(0.2, size=60), rng.integers(1, 12, size=60)
        found = curves.survival(np.minimum(duration, cut), duration <= cut)
        at = np.searchsorted(found.time_T, [2, 4])
        covered.append((found.low_T[at] <= 0.8 ** np.array([2, 4])) & (0.8 ** np.array([2, 4]) <= found.high_T[at]))
    rates = np.mean(covered, axis=0)
    assert ((rates >= 0.93) & (rates <= 0.97)).all()


def saturating(time_T: np.ndarray) -> np.ndarray:
    """Accuracy from .3 towards .7."""
    return 0.3 + 0.4 * (1 - np.exp(-time_T / 7))


STEPS = np.arange(20.0)


@pytest.mark.parametrize("common", [0.0, 0.03])
@pytest.mark.parametrize("planted", [0.6, 0.8, 1.0, 1.3])
def test_a_planted_time_factor_is_found_and_covered(planted: float, common: float) -> None:
    """common: noise that both arms have at a step, as they train on the same prompts."""
    rng, runs = np.random.default_rng(3), 200
    found = []
    for _ in range(runs):
        both_ST = common * rng.normal(size=(5, 20))
        baseline_ST, arm_ST = (
            saturating(c * STEPS) + both_ST + 0.01 * rng.normal(size=(5, 20)) for c in (1.0, planted)
        )
        found.append(curves.time_factor(baseline_ST, arm_ST, STEPS))
    assert np.mean([factor.factor for factor in found]) == pytest.approx(planted, rel=0.02)
    assert 0.9 <= np.mean([factor.low <= planted <= factor.high for factor in found]) <= 0.99
    assert np.mean([factor.high - factor.low for factor in found]) < 0.2


def test_seeds_that_differ_widen_the_interval() -> None:
    own_S = np.array([0.7, 0.8, 0.9])
    curves_ST = saturating(own_S[:, None] * STEPS)
    found = curves.time_factor(np.tile(saturating(STEPS), (3, 1)), curves_ST, STEPS)
    assert found.by_seed == pytest.approx(own_S, rel=0.01)
    expected = t_interval(np.log(found.by_seed))
    assert (found.factor, found.low, found.high) == pytest.approx(
        (math.exp(expected.mean), math.exp(expected.low), math.exp(expected.high))
    )


def test_a_curve_is_as_fast_as_itself() -> None:
    curve_ST = saturating(STEPS) + 0.02 * np.random.default_rng(0).normal(size=(4, 20))
    found = curves.time_factor(curve_ST, curve_ST, STEPS)
    assert found == curves.TimeFactor(1.0, 1.0, 1.0, (1.0,) * 4)


@given(st.integers(0, 2**32 - 1))
def test_exchanging_the_arms_inverts_the_factor(seed: int) -> None:
    rng = np.random.default_rng(seed)
    step_T = np.concatenate([[0], np.cumsum(rng.uniform(0.5, 3, 12))])
    first_ST, second_ST = (saturating(step_T) + 0.02 * rng.normal(size=(1, 13)) for _ in range(2))
    one = curves.time_factor(first_ST, second_ST, step_T)
    other = curves.time_factor(second_ST, first_ST, step_T)
    assert one.factor * other.factor == pytest.approx(1, rel=1e-6)
    longer = curves.time_factor(first_ST, second_ST, 10 * step_T)
    assert longer.factor == pytest.approx(one.factor, rel=1e-6)


def test_curves_that_determine_no_factor_have_none() -> None:
    flat_ST, rising_ST = np.full((2, 20), 0.3), np.tile(saturating(STEPS), (2, 1))
    for baseline_ST, arm_ST in ((flat_ST, flat_ST), (rising_ST, flat_ST), (rising_ST, saturating(9 * STEPS)[None])):
        found = curves.time_factor(baseline_ST[: len(arm_ST)], arm_ST, STEPS)
        assert np.isnan([found.factor, found.low, found.high, *found.by_seed]).all()


def test_one_seed_has_a_factor_but_no_interval() -> None:
    found = curves.time_factor(saturating(STEPS)[None], saturating(0.8 * STEPS)[None], STEPS)
    assert found.factor == pytest.approx(0.8, rel=0.01)
    assert np.isnan([found.low, found.high]).all()


@pytest.mark.parametrize(
    ("baseline", "arm", "steps", "part"),
    [
        ((2, 3), (2, 3), [0, 1, 2], "at least 4"),
        ((2, 4), (2, 4), [1, 2, 3, 4], "from 0"),
        ((2, 4), (2, 4), [0, 2, 2, 3], "rising"),
        ((2, 4), (3, 4), [0, 1, 2, 3], "one shape"),
        ((2, 5), (2, 5), [0, 1, 2, 3], "one shape"),
        ((0, 4), (0, 4), [0, 1, 2, 3], "one seed"),
    ],
)
def test_time_factor_refuses_what_it_cannot_compare(
    baseline: tuple[int, int], arm: tuple[int, int], steps: list[int], part: str
) -> None:
    with pytest.raises(ValueError, match=part):
        curves.time_factor(np.zeros(baseline), np.zeros(arm), steps)


def test_time_factor_refuses_a_gap() -> None:
    curve_ST = saturating(STEPS)[None]
    with pytest.raises(ValueError, match="NaN"):
        curves.time_factor(curve_ST, np.where(STEPS == 3, np.nan, curve_ST), STEPS)
