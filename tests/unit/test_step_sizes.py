"""Effects as step sizes: by hand, against a scan of t-tests, simulated coverage, and from the runs of a comparison."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from mcpo_cli.analysis import step_sizes
from mcpo_cli.analysis.comparison import Choice, compare
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.config import plan
from mcpo_cli.statistics.stats import Floats
from mcpo_cli.statistics.step_size import equal_step
from tests import fakes
from tests.errors import refused

SIZE_C = np.array([1.0, 2.0, 4.0])


def test_the_size_is_between_those_around_it_on_a_logarithmic_scale() -> None:
    """The mean .45 is half way from .4 (size 2) to .5 (size 4): 2 * sqrt(2)."""
    noise_S = np.array([-0.001, 0.0, 0.001])
    y_SC = np.array([0.3, 0.4, 0.5]) + noise_S[:, None]
    found = equal_step(SIZE_C, y_SC, np.array([0.45, 0.449, 0.451]))
    assert found is not None
    assert found.size == pytest.approx(2 * math.sqrt(2))
    assert 2 < found.low < found.size < found.high < 4
    falling = equal_step(SIZE_C, 1 - y_SC, 1 - np.array([0.45, 0.449, 0.451]))
    assert falling is not None
    assert (falling.size, falling.low, falling.high) == pytest.approx((found.size, found.low, found.high))


def test_the_interval_has_the_sizes_that_a_paired_t_test_keeps() -> None:
    """Fieller's quadratic against a scan of scipy's t-test."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        shared_S = rng.normal(0, 0.02, 5)
        y_SC = np.array([0.3, 0.38, 0.5]) + shared_S[:, None] + rng.normal(0, 0.015, (5, 3))
        y_S = 0.41 + shared_S + rng.normal(0, 0.015, 5)
        found = equal_step(SIZE_C, y_SC, y_S)
        assert found is not None
        log_L = np.linspace(0, math.log(4), 2001)
        curve_SL = np.array([np.interp(log_L, np.log(SIZE_C), own_C) for own_C in y_SC])
        kept_L = log_L[scipy_stats.ttest_rel(y_S[:, None], curve_SL).pvalue > 0.05]
        low, high = kept_L.min(), kept_L.max()
        assert math.log(max(found.low, 1)) == pytest.approx(low, abs=1e-3)
        assert math.log(min(found.high, 4)) == pytest.approx(high, abs=1e-3)
        assert (found.low == 0) == (low == 0)
        assert math.isinf(found.high) == (high == math.log(4))


def test_ends_beyond_the_grid_and_sets_without_a_size() -> None:
    noise_S = np.array([-0.01, 0.0, 0.01])
    y_SC = np.array([0.3, 0.4, 0.5]) + noise_S[:, None]
    above = equal_step(SIZE_C, y_SC, np.array([0.9, 0.91, 0.9]))
    assert above is not None
    assert all(map(math.isnan, (above.size, above.low, above.high)))
    near = equal_step(SIZE_C, y_SC, np.array([0.50, 0.51, 0.505]))
    assert near is not None
    assert math.isnan(near.size)
    assert near.low < 4
    assert math.isinf(near.high)
    noisy = equal_step(SIZE_C, y_SC, np.array([0.1, 0.4, 0.7]))
    assert noisy is not None
    assert (noisy.size, noisy.low, noisy.high) == (pytest.approx(2), 0.0, math.inf)


def test_equal_runs_have_a_size() -> None:
    found = equal_step(SIZE_C, np.tile([0.25, 0.5, 0.75], (3, 1)), np.full(3, 0.5))
    assert found is not None
    assert found.size == pytest.approx(2)


def test_a_curve_that_turns_names_no_size() -> None:
    y_SC = np.array([[0.3, 0.5, 0.4]] * 3) + np.array([[-0.01], [0.0], [0.01]])
    assert equal_step(SIZE_C, y_SC, np.full(3, 0.35)) is None


@pytest.mark.parametrize("shape", [(2, 3), (3, 2)])
def test_too_little_to_say_anything(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="rising step sizes"):
        equal_step(SIZE_C[: shape[1]], np.zeros(shape), np.zeros(shape[0]))
    with pytest.raises(ValueError, match="rising step sizes"):
        equal_step(SIZE_C[::-1], np.zeros((3, 3)), np.zeros(3))


def covered(runs: int, truth_C: Floats, size: float, score: float, draws: int) -> float:
    """The share of intervals that contain the true size, among those that exist."""
    rng = np.random.default_rng([runs, int(1000 * size)])
    inside, total = 0, 0
    for _ in range(draws):
        shared_S = rng.normal(0, 0.03, runs)
        y_SC = truth_C + shared_S[:, None] + rng.normal(0, 0.02, (runs, len(truth_C)))
        found = equal_step(SIZE_C, y_SC, score + shared_S + rng.normal(0, 0.02, runs))
        if found is not None:
            total, inside = total + 1, inside + (found.low <= size <= found.high)
    assert total > draws / 2
    return inside / total


@pytest.mark.slow
@pytest.mark.parametrize("runs", [3, 12])
def test_the_interval_covers_what_it_promises(runs: int) -> None:
    """95 % nominal; 2000 draws have a standard error of .5 %. The truth is between two sizes, and at one of them."""
    truth_C = np.array([0.3, 0.4, 0.5])
    for size in (2**1.5, 2.0):
        score = float(np.interp(math.log(size), np.log(SIZE_C), truth_C))
        assert 0.935 < covered(runs, truth_C, size, score, 2000) < 0.965


@pytest.mark.slow
def test_a_bend_between_two_sizes_costs_coverage() -> None:
    """The reason for the note on straight lines: with many runs, a curve bent by .02 in the middle is covered less."""
    truth_C = np.array([0.3, 0.4, 0.5])
    assert covered(12, truth_C, 2**1.5, 0.45 + 0.02, 2000) < 0.9


SUITE = ["method=dapo,mcpo", "train.lr=1e-4,2e-4,4e-4", "scale=smoke", "seed=0,1,2"]


@pytest.fixture(scope="module")
def runs(module_home: Path) -> Runs:
    whole = plan.from_overrides(SUITE)
    fakes.write_runs(whole)
    return Runs(whole)


def scored(runs: Runs, monkeypatch: pytest.MonkeyPatch, scores: dict[str, float]) -> None:
    """Give every run of an arm this score at its end, and seed s some s / 1000 more or less, by arm."""
    rows = [
        {"arm": cell.arm, "model": "toy-s", "base_seed": cell.spec.seed_of_base, "seed": cell.spec.seed, "tier": "k2-3"}
        | {"step": step, "cost/rollouts": 100.0 * step}
        | dict.fromkeys(("pass@1", "best@8", "pass@8"), 0.1 if not step else score + cell.spec.seed * sign / 1000)
        for cell in runs.cells
        for step in (0, 2)
        for score, sign in [(scores[cell.arm], 1 if cell.spec.method.name == "mcpo" else -1)]
    ]
    monkeypatch.setattr(Runs, "scores", lambda self, k: pd.DataFrame(rows))


def arms(runs: Runs) -> list[str]:
    return list(dict.fromkeys(cell.arm for cell in runs.cells))


def test_each_arm_as_a_learning_rate_of_the_baseline(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """mcpo's scores are those of dapo at the next rate, .002 higher on average: the factor is slightly above 2."""
    names = arms(runs)
    scored(runs, monkeypatch, dict(zip(names, (0.3, 0.4, 0.5, 0.4, 0.5, 0.9), strict=True)))
    product = step_sizes.product("x", compare(runs, Choice()))
    rows = product.data[product.data["at"] == "steps"].set_index("rate")
    # mcpo's mean is .401; dapo's is .399 at twice the rate and .499 at four times.
    assert rows.loc[1e-4, "factor"] == pytest.approx(2 * 2 ** (0.002 / 0.1))
    assert rows.loc[1e-4, "effect"] == pytest.approx(0.102)
    assert rows.loc[1e-4, "low"] < rows.loc[1e-4, "factor"] < rows.loc[1e-4, "high"]
    assert math.isnan(rows.loc[4e-4, "factor"])
    assert rows.loc[4e-4, "lacks"] == step_sizes.OUTSIDE
    assert "factor 2.03 (95 % interval" in product.sentence
    assert "no step size of the grid does the same" in product.sentence
    assert product.figure is not None


def test_a_baseline_whose_curve_turns(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    scored(runs, monkeypatch, dict(zip(arms(runs), (0.3, 0.5, 0.4, 0.4, 0.4, 0.4), strict=True)))
    product = step_sizes.product("x", compare(runs, Choice()))
    assert set(product.data["lacks"]) == {step_sizes.NOT_MONOTONE}
    assert "neither rises nor falls" in product.sentence


def test_another_baseline_is_the_grid(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    names = arms(runs)
    scored(runs, monkeypatch, dict(zip(names, (0.4, 0.5, 0.6, 0.3, 0.4, 0.5), strict=True)))
    product = step_sizes.product("x", compare(runs, Choice(baseline=names[4])))
    assert set(product.data["arm"]) == set(names[:3])


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["method=dapo,mcpo", "train.lr=1e-4,2e-4", "seed=0,1,2"], "a curve needs 3"),
        (["method=dapo", "train.lr=1e-4,2e-4,4e-4", "seed=0,1,2"], "no other arm"),
        (["method=dapo,mcpo", "train.lr=1e-4,2e-4,4e-4", "seed=0,1"], "2 seeds"),
    ],
)
def test_grids_that_say_nothing(runs: Runs, overrides: list[str], words: str) -> None:
    part = plan.from_overrides(["scale=smoke", *overrides])
    with refused("bad_input", words) as caught:
        step_sizes.product("x", compare(Runs(part), Choice()))
    assert caught.value.fix
