"""Means and differences over problems x seeds: against scipy and analysis of variance (test_interval_coverage.py)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from scipy import stats as scipy_stats

from mcpo_cli.statistics import crossed
from mcpo_cli.statistics.crossed import Sources
from mcpo_cli.statistics.stats import Floats


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_one_seed_is_the_paired_t_test_over_problems() -> None:
    a, b = rng(1).random(30), rng(2).random(30)
    found = crossed.difference(a[None], b[None], same_seeds=True)
    expected = scipy_stats.ttest_rel(a, b)
    assert found.test.mean / found.test.error == pytest.approx(expected.statistic)
    assert (found.test.df, found.over) == (29, "problems")
    assert 2 * min(found.test.p_above(), found.test.p_below()) == pytest.approx(expected.pvalue)


def test_seeds_that_differ_alike_on_all_problems_are_the_t_test_over_seeds() -> None:
    shift_S = rng(3).normal(size=5)
    found = crossed.mean(np.repeat(shift_S[:, None], 40, axis=1))
    expected = scipy_stats.ttest_1samp(shift_S, 0.0)
    assert found.over == "both"
    assert found.test.df == pytest.approx(4)
    assert found.test.mean / found.test.error == pytest.approx(expected.statistic)


def test_complete_tables_have_the_mean_squares_of_the_analysis_of_variance() -> None:
    score_SP = rng(4).normal(size=(4, 7)) + rng(5).normal(size=(4, 1)) + rng(6).normal(size=7)
    grand, row, column = score_SP.mean(), score_SP.mean(axis=1), score_SP.mean(axis=0)
    of_problems = 4 * sum((value - grand) ** 2 for value in column) / 6
    of_seeds = 7 * sum((value - grand) ** 2 for value in row) / 3
    of_cells = sum((score_SP[s, p] - row[s] - column[p] + grand) ** 2 for s in range(4) for p in range(7)) / 18
    found = crossed.mean(score_SP)
    assert found.test.mean == pytest.approx(grand)
    assert [part.value * 28 for part in found.parts] == pytest.approx([of_problems, of_seeds, of_cells])
    assert [part.df for part in found.parts] == [6, 3, 18]
    assert found.test.error**2 * 28 == pytest.approx(of_problems + of_seeds - of_cells)


def test_a_pair_of_unpaired_sides_adds_what_their_seeds_differ_by() -> None:
    a, b = rng(7).normal(size=(3, 50)), rng(8).normal(size=(6, 50))
    found = crossed.difference(a, b, same_seeds=False)
    assert found.test.mean == pytest.approx(a.mean() - b.mean())
    one, other = crossed.mean(a), crossed.mean(b)
    assert found.parts[1:] == (*one.parts[1:], *other.parts[1:])
    assert found.parts[0].value == pytest.approx((a.mean(axis=0) - b.mean(axis=0)).var(ddof=1) / 50)


@given(st.integers(0, 10_000))
def test_the_order_of_problems_and_seeds_does_not_matter(seed: int) -> None:
    random = rng(seed)
    score_SP = random.random((4, 6))
    score_SP[random.integers(4), random.integers(6)] = math.nan
    shuffled = score_SP[random.permutation(4)][:, random.permutation(6)]
    one, other = crossed.mean(score_SP).test, crossed.mean(shuffled).test
    assert (one.mean, one.error, one.df) == pytest.approx((other.mean, other.error, other.df), rel=1e-6)


def test_missing_cells_leave_problem_effects_out_of_the_seeds_part() -> None:
    """Seeds with different problems differ in their means, but not in their effects."""
    problem_P = np.linspace(0, 1, 12)
    score_SP = np.repeat(problem_P[None], 4, axis=0)
    score_SP[0, :4] = score_SP[1, 8:] = math.nan
    found = crossed.mean(score_SP)
    assert found.test.mean == pytest.approx(0.5)
    assert [part.value for part in found.parts[1:]] == pytest.approx([0, 0], abs=1e-20)


def test_benchmarks_count_alike_whatever_their_size() -> None:
    small, large = rng(12).random((4, 5)), rng(13).random((4, 50))
    both = np.hstack([small, large])
    found = crossed.mean(both, np.repeat([0, 1], [5, 50]))
    assert found.test.mean == pytest.approx((small.mean() + large.mean()) / 2)
    parts = [crossed.mean(one).parts[0].value / 4 for one in (small, large)]
    assert [part.value for part in found.parts if part.name == "problem"] == pytest.approx(parts, rel=1e-6)
    # The seeds of both benchmarks are the same runs: their part is that of the runs' means.
    run_S = (small.mean(axis=1) + large.mean(axis=1)) / 2
    assert found.parts[2].value == pytest.approx(run_S.var(ddof=1) / 4)


@pytest.mark.parametrize(
    ("a", "b", "same", "words"),
    [
        (np.zeros((1, 1)), np.zeros((1, 1)), True, "at least 2 problems"),
        (np.zeros((0, 4)), np.zeros((0, 4)), True, "a table"),
        (np.zeros(4), np.zeros(4), True, "a table"),
        (np.zeros((2, 4)), np.zeros((3, 4)), True, "same number"),
        (np.zeros((2, 4)), np.zeros((2, 5)), False, "same problems"),
        (np.full((2, 4), math.nan), np.zeros((2, 4)), True, "no scores"),
    ],
)
def test_what_cannot_be_compared_is_refused(a: Floats, b: Floats, same: bool, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        crossed.difference(a, b, same_seeds=same)


def test_sides_without_any_difference_have_no_width_and_no_verdict() -> None:
    same = crossed.difference(np.ones((3, 9)), np.ones((3, 9)), same_seeds=True).test
    assert (same.mean, same.error, same.p_above()) == (0, 0, 0.5)
    all_by_one = crossed.difference(np.ones((3, 9)), np.zeros((3, 9)), same_seeds=True).test
    assert math.isnan(all_by_one.p_above())


def drawn(
    random: np.random.Generator, seeds: int, problems: int, samples: int, spread: Sources, effect: float = 0.0
) -> tuple[Floats, Floats, Floats, Floats]:
    """Two sides of normal scores with known variances, and the variance of one sample in each cell."""
    problem_P = random.normal(0, 1, problems)
    sides, noise = [], []
    for shift in (effect, 0.0):
        own_P = random.normal(0, math.sqrt(spread.problem / 2), problems)
        cell_SP = random.normal(0, math.sqrt(spread.cell / 2), (seeds, problems))
        seed_S1 = random.normal(0, math.sqrt(spread.seed / 2), (seeds, 1))
        score = random.normal(0, math.sqrt(spread.sample / 2), (samples, seeds, problems))
        sides.append(shift + problem_P + own_P + seed_S1 + cell_SP + score.mean(axis=0))
        noise.append(score.var(axis=0, ddof=1) if samples > 1 else np.full((seeds, problems), math.nan))
    return sides[0], sides[1], noise[0], noise[1]


TRUE = Sources(problem=0.02, seed=0.004, cell=0.05, sample=0.3)


def test_the_spread_of_problems_of_one_seed_is_without_that_of_its_samples() -> None:
    score_P = np.array([0.0, 0.25, 0.75, 1.0, 1.0])
    found = crossed.sources(crossed.mean(score_P[None]), [np.full((1, 5), 0.2)], 4)
    assert found.problem == pytest.approx(score_P.var(ddof=1) - 0.2 / 4)
    assert found.sample == pytest.approx(0.2)
    assert math.isnan(found.seed)


def test_sources_are_found_and_so_is_the_error_that_they_predict() -> None:
    random, found, errors = rng(9), [], []
    for _ in range(60):
        a, b, *noise = drawn(random, 6, 80, 4, TRUE)
        estimate = crossed.difference(a, b, same_seeds=True)
        found.append(crossed.sources(estimate, noise, 4))
        errors.append(estimate.test.error)
    for name in ("problem", "seed", "cell", "sample"):
        values = np.array([getattr(one, name) for one in found])
        assert abs(values.mean() - getattr(TRUE, name)) < 4 * values.std() / math.sqrt(60), name
    assert np.mean(errors) == pytest.approx(TRUE.error(80, 6, 4)[0], rel=0.1)


def test_what_a_design_needs_is_the_least_that_finds_the_effect() -> None:
    needed = TRUE.needed(0.16, problems=40, seeds=4, samples=2)
    for name, change in (("problems", 0), ("seeds", 1)):
        number = needed[name]
        design = [40, 4, 2]
        assert number is not None
        design[change] = number
        assert TRUE.detectable(*design) <= 0.16
        design[change] = number - 1
        assert TRUE.detectable(*design) > 0.16
    assert TRUE.needed(0.01, problems=40, seeds=4, samples=2)["samples"] is None  # seeds alone differ by more


def test_p_values_in_the_tails_allow_for_the_doubt_in_the_spread_of_few_seeds() -> None:
    """Seeds that happen to agree: by an independent integral over the seeds' variance, not by Satterthwaite alone."""
    random = rng(12)
    score_SP = 0.06 + random.normal(0, 0.01, (3, 1)) + random.normal(0, 0.1, 60) + random.normal(0, 0.05, (3, 60))
    found = crossed.mean(score_SP)
    problem, seed, cell = found.parts
    plain = 2 * scipy_stats.t(found.test.df).sf(found.test.mean / found.test.error)

    def tail(chance: float) -> float:
        variance = max(problem.value - cell.value + 2 * seed.value / scipy_stats.chi2(2).ppf(chance), cell.value)
        df = max(variance**2 / (problem.value**2 / 59 + cell.value**2 / 118), 59)
        return float(scipy_stats.t(df).sf(found.test.mean / math.sqrt(variance)))

    expected = 2 * integrate.quad(tail, 0, 1, limit=200)[0]
    p = 2 * min(found.test.p_above(), found.test.p_below())
    assert plain < p < 0.05
    assert p == pytest.approx(expected, rel=0.01)
    # The interval holds what no test at its level rejects; at 95 % it is Satterthwaite's.
    assert found.test.interval(1 - p).low == pytest.approx(0, abs=1e-6)
    assert found.test.interval().half_width == pytest.approx(
        scipy_stats.t(found.test.df).ppf(0.975) * found.test.error, rel=1e-9
    )
