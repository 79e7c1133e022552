"""Response surfaces: planted responses are found, noise is not, and held-out points measure the quality."""

import numpy as np
import pytest
from scipy.stats import qmc

from mcpo_cli.statistics.stats import Floats
from mcpo_cli.statistics.surface import Surface, calibration, sensitivity

N, F, NOISE = 128, 4, 0.02


@pytest.fixture(scope="module")
def places() -> Floats:
    return np.asarray(qmc.Sobol(F, rng=3).random(N))


def response(place_NF: Floats) -> Floats:
    """It depends on the first two settings alone, with an interaction."""
    return 0.2 * (place_NF[:, 0] - 0.5) + 0.2 * (place_NF[:, 0] - 0.5) * (place_NF[:, 1] - 0.5)


def above(surface: Surface, place_MF: Floats) -> Floats:
    """Probability of a response above 0 at places of all settings, so that there are no others to average over."""
    return surface.over(range(F), place_MF, place_MF[:1])[1]


@pytest.fixture(scope="module")
def fitted(places: Floats) -> Surface:
    return Surface(places, response(places) + np.random.default_rng(0).normal(0, NOISE, N))


def test_a_planted_response_is_found(fitted: Surface) -> None:
    elsewhere = np.asarray(qmc.Sobol(F, rng=9).random(64))
    mean_M, sd_M = fitted.at(elsewhere)
    error_M = mean_M - response(elsewhere)
    assert np.sqrt(np.mean(error_M**2)) < NOISE / 2
    assert np.mean(np.abs(error_M) < 2 * sd_M) > 0.85
    assert fitted.noise == pytest.approx(NOISE, rel=0.3)


def test_one_point_that_is_off_is_noise_and_no_bump() -> None:
    """The surface changes only over distances at least as large as those between points."""
    grid = np.stack(np.meshgrid(np.linspace(0, 1, 5), np.linspace(0, 1, 5)), axis=-1).reshape(-1, 2)
    seen = (np.arange(25) == 12).astype(float)
    assert Surface(grid, seen).noise == pytest.approx(seen.std(ddof=1), rel=0.05)


def test_probability_above_0_is_sure_far_from_0(fitted: Surface) -> None:
    ends = np.array([[0.05, 0.5, 0.5, 0.5], [0.95, 0.5, 0.5, 0.5]])
    low, high = above(fitted, ends)
    assert low < 0.01
    assert high > 0.99


def test_a_mean_over_the_other_settings_is_that_of_the_response(fitted: Surface, places: Floats) -> None:
    mean_M, above_M = fitted.over([0], np.array([[0.1], [0.9]]), places)
    assert mean_M == pytest.approx([-0.08, 0.08], abs=0.02)
    assert above_M == pytest.approx([0, 1], abs=0.05)


def test_sensitivity_is_that_of_the_closed_form(fitted: Surface) -> None:
    # Variances of the terms: .04 / 12, and .04 / 144.
    found = sensitivity(fitted)
    main, interaction = 0.04 / 12, 0.04 / 144
    assert found == pytest.approx([1, interaction / (main + interaction), 0, 0], abs=0.06)


@pytest.mark.slow
def test_held_out_points_are_within_their_intervals_as_often_as_these_say(places: Floats, fitted: Surface) -> None:
    seen = response(places) + np.random.default_rng(0).normal(0, NOISE, N)
    found = calibration(places, seen)
    best = 1 - NOISE**2 / seen.var()
    assert best - 0.15 < found.explained < 1
    assert 0.35 < found.coverage(0.5) < 0.65
    assert found.coverage(0.95) > 0.87


@pytest.mark.slow
def test_noise_alone_predicts_nothing(places: Floats) -> None:
    covered, explained = [], []
    for seed in range(2):
        noise = np.random.default_rng(seed).normal(0, NOISE, 64)
        found = calibration(places[:64], noise)
        covered.append(found.coverage(0.95))
        explained.append(found.explained)
    assert np.mean(covered) > 0.88
    assert max(explained) < 0.15


def test_a_planted_response_is_sure_where_it_is_far_from_0_and_nowhere_else(fitted: Surface, places: Floats) -> None:
    above_M, below_M = fitted.sure(places)
    truth_M = response(places)
    assert above_M[truth_M > 0.06].mean() > 0.9
    assert below_M[truth_M < -0.06].mean() > 0.9
    assert not (above_M & (truth_M < 0)).any()
    assert not (below_M & (truth_M > 0)).any()


@pytest.mark.slow
def test_maps_of_noise_alone_are_seldom_sure_anywhere(places: Floats) -> None:
    """50 maps. Place by place, at .95, more than a third of them would have a place that is."""
    together, pointwise = [], []
    for seed in range(50):
        surface = Surface(places[:48], np.random.default_rng(seed).normal(0, NOISE, 48))
        together.append(np.any(surface.sure(places)))
        above_M = above(surface, places)
        pointwise.append(bool(((above_M > 0.95) | (above_M < 0.05)).any()))
    assert np.mean(together) <= 0.1
    assert np.mean(pointwise) > 0.33


def test_the_same_points_give_the_same_digits(places: Floats) -> None:
    first, second = (Surface(places, response(places)).at(places)[0] for _ in range(2))
    assert np.array_equal(first, second)
