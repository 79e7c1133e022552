"""Aggregates over tasks and the probability of improvement: by hand, by rliable, and what intervals cover."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rliable import metrics
from scipy import stats as scipy_stats

from mcpo_cli.statistics import effects

SHAPES = st.tuples(st.integers(2, 6), st.integers(1, 4))
AGGREGATES = {effects.mean: metrics.aggregate_mean, effects.interquartile_mean: metrics.aggregate_iqm}


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def columns(score_SN: np.ndarray) -> list[np.ndarray]:
    """Every task a stratum of its own, as rliable takes them."""
    return [score_SN[:, [n]] for n in range(score_SN.shape[1])]


def test_by_hand() -> None:
    one, other = np.array([[0.1, 0.9], [0.3, 0.5]]), np.array([[0.6], [0.0]])
    assert effects.mean([one, other], rng()).value == pytest.approx((0.2 + 0.7 + 0.3) / 3)
    # Of 0, .1, .3, .5, .6, .9 the first and the last quarter go: one value each.
    assert effects.interquartile_mean([one, other], rng()).value == pytest.approx((0.1 + 0.3 + 0.5 + 0.6) / 4)
    # Task 1: .1 and .3 against .2 twice, half of the pairs. Task 2: .9 wins twice, .5 wins once and once draws.
    found = effects.probability_of_improvement([one], [np.array([[0.2, 0.5], [0.2, 0.4]])], rng())
    assert found.value == pytest.approx((2 / 4 + 3.5 / 4) / 2)


@settings(deadline=None)
@given(SHAPES, st.integers(0, 2**32 - 1))
def test_values_are_those_of_rliable(shape: tuple[int, int], seed: int) -> None:
    # Rounded, so that there are ties.
    x_SN, y_SN = np.random.default_rng(seed).normal(size=(2, *shape)).round(1)
    for ours, theirs in AGGREGATES.items():
        assert ours([x_SN], rng(), draws=1).value == pytest.approx(theirs(x_SN))
    expected = metrics.probability_of_improvement(x_SN, y_SN)
    assert effects.probability_of_improvement([x_SN], [y_SN], rng(), draws=1).value == pytest.approx(expected)


def rliable_interval(statistic: Callable[..., Any], *samples: np.ndarray) -> list[float]:
    """rliable's stratified bootstrap: each task's runs are drawn by themselves, each sample by itself."""
    generator, values = np.random.default_rng(1), []
    for _ in range(2000):
        drawn = [x_SN[generator.choice(len(x_SN), x_SN.shape), np.arange(x_SN.shape[1])] for x_SN in samples]
        values.append(statistic(*drawn))
    return np.quantile(values, [0.025, 0.975]).tolist()


@pytest.mark.slow
def test_with_a_stratum_a_task_intervals_are_those_of_rliable() -> None:
    x_SN, y_SN = rng().normal([[[0.3]], [[0.0]]], size=(2, 5, 3))
    for ours, theirs in AGGREGATES.items():
        found = ours(columns(x_SN), rng())
        assert [found.low, found.high] == pytest.approx(rliable_interval(theirs, x_SN), abs=0.03)
    found = effects.probability_of_improvement(columns(x_SN), columns(y_SN), rng())
    expected = rliable_interval(metrics.probability_of_improvement, x_SN, y_SN)
    assert [found.low, found.high] == pytest.approx(expected, abs=0.03)


def test_runs_are_drawn_whole() -> None:
    """Tasks that say the same of each run tell nothing new: the interval is that of one task."""
    score_SN = rng().normal(size=(5, 1))
    one, four = (effects.mean([np.repeat(score_SN, n, axis=1)], rng()) for n in (1, 4))
    assert (four.low, four.high) == pytest.approx((one.low, one.high))
    apart = effects.mean([score_SN] * 4, rng())
    assert apart.high - apart.low < 0.7 * (one.high - one.low)


def test_interval_agrees_with_the_enumeration_of_all_draws() -> None:
    score_SN = np.array([[0.1, 0.2], [0.4, 0.9], [0.6, 0.3]])
    means = [score_SN[list(runs)].mean() for runs in itertools.product(range(3), repeat=3)]
    found = effects.mean([score_SN], rng(), draws=100_000, level=0.8)
    assert [found.low, found.high] == pytest.approx(np.quantile(means, [0.1, 0.9]).tolist(), abs=1e-9)


def test_the_same_generator_gives_the_same_digits() -> None:
    strata = [rng().normal(size=(6, 2))]
    assert effects.mean(strata, rng()) == effects.mean(strata, rng())
    assert effects.mean(strata, rng()) != effects.mean(strata, np.random.default_rng(1))


def test_one_run_has_a_value_but_no_interval() -> None:
    one, three = np.array([[0.4, 0.6]]), np.array([[0.1, 0.7], [0.2, 0.8], [0.3, 0.9]])
    found = effects.probability_of_improvement([one], [three], rng())
    assert found.value == 0.5
    assert math.isnan(found.low)
    assert math.isnan(effects.mean([one], rng()).high)


@pytest.mark.parametrize("strata", [[], [np.zeros((0, 2))], [np.zeros(3)], [np.array([[np.nan]])]])
def test_what_has_no_aggregate_is_refused(strata: list[np.ndarray]) -> None:
    with pytest.raises(ValueError, match="non-empty"):
        effects.mean(strata, rng())
    with pytest.raises(ValueError, match="same strata"):
        effects.probability_of_improvement([np.zeros((2, 2))], [np.zeros((2, 3))], rng())


def scores(generator: np.random.Generator, seeds: int) -> list[np.ndarray]:
    """Three tasks of unit variance, half of which their run shares."""
    shared_S1, own_SN = generator.normal(size=(seeds, 1)), generator.normal(size=(seeds, 3))
    return [math.sqrt(0.5) * (shared_S1 + own_SN)]


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "low", "high"), [(3, 0.71, 0.83), (40, 0.91, 0.97)])
def test_coverage_is_what_the_docstrings_say(seeds: int, low: float, high: float) -> None:
    """95 % nominal: kept with many seeds, not with three."""
    generator = np.random.default_rng(5)
    truth = scipy_stats.norm.cdf(0.5 / math.sqrt(2))
    covered = []
    for _ in range(600):
        arm, baseline = scores(generator, seeds), scores(generator, seeds)
        found = [aggregate(arm, generator, draws=200) for aggregate in AGGREGATES]
        won = effects.probability_of_improvement([arm[0] + 0.5], baseline, generator, draws=200)
        covered.append([*(one.low <= 0 <= one.high for one in found), won.low <= truth <= won.high])
    rates = np.mean(covered, axis=0)
    assert ((low <= rates) & (rates <= high)).all()
