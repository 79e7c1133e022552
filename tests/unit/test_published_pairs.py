"""Conclusions from published numbers, against formulas by hand and enumeration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from scipy import stats as scipy_stats

from mcpo_cli.statistics import published, stats
from mcpo_cli.statistics.published import Assumed, Parts, PublishedArm


def exactly(spread: float = 0.0, correlation: float = 1.0, run_sd: float = 0.0) -> Assumed:
    """Assumptions without a range."""
    return Assumed((spread,) * 3, (correlation,) * 3, (run_sd,) * 3)


def arm(
    value: float, assumed: Assumed, problems: int = 30, sets: float = 8, seeds: int = 1, **more: float
) -> PublishedArm:
    problem_M, answer_M, plausible = published.assumed_spread(value, assumed.spread)
    return PublishedArm(problem_M / problems, answer_M / (problems * sets * seeds), plausible, seeds, **more)


def test_terms_are_those_of_binomials_by_hand() -> None:
    alike, apart = exactly(), exactly(spread=1.0)
    found = published.parts(arm(0.6, alike), arm(0.5, alike), alike, "answers", "plausible", paired=True)
    assert found.error == pytest.approx(math.sqrt(0.6 * 0.4 / 240 + 0.5 * 0.5 / 240))
    sides = arm(0.6, apart, 30), arm(0.5, apart, 50)
    assert published.parts(*sides, apart, "answers", "plausible", paired=False).error == 0
    found = published.parts(*sides, apart, "problems", "plausible", paired=False)
    assert found.error == pytest.approx(math.sqrt(0.6 * 0.4 / 30 + 0.5 * 0.5 / 50))
    assumed = exactly(spread=0.5, correlation=0.8, run_sd=0.02)
    sides = arm(0.5, assumed, 100, 4, 2), arm(0.5, assumed, 100, 4, 2)
    found = published.parts(*sides, assumed, "trainings", "plausible", paired=True)
    by_hand = 2 * 0.125 / 800, 2 * 0.125 * 0.2 / 100, 2 * 0.0004 / 2
    assert (found.answers, found.problems, found.runs) == pytest.approx(by_hand)


def test_reported_deviations_over_runs_are_welchs_test() -> None:
    assumed = exactly()
    sides = arm(0.6, assumed, seeds=5, run_sd=0.03), arm(0.5, assumed, seeds=3, run_sd=0.05)
    found = published.parts(*sides, assumed, "trainings", "plausible", paired=True)
    welch = scipy_stats.ttest_ind_from_stats(0.6, 0.03, 5, 0.5, 0.05, 3, equal_var=False)
    statistic = 0.1 / found.error
    assert statistic == pytest.approx(welch.statistic)
    assert 2 * special.stdtr(found.df, -statistic) == pytest.approx(welch.pvalue)


@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95), st.booleans(), st.sampled_from(published.SCOPES))
def test_best_is_at_most_plausible_and_worst_at_least(a: float, b: float, paired: bool, scope: published.Scope) -> None:
    assumed = Assumed()
    sides = arm(a, assumed), arm(b, assumed)
    errors = [published.parts(*sides, assumed, scope, case, paired=paired).error for case in published.CASES]
    assert errors == sorted(errors)


def test_an_error_over_problems_has_one_spread_behind_it() -> None:
    problem, answer, problems, sets = 0.09, 0.15, 50, 4
    found = published.spread_of_error(0.6, math.sqrt((problem + answer / sets) / problems), problems, sets)
    assert [found[0][0], found[1][0]] == pytest.approx([problem, answer])


@pytest.mark.parametrize("kind", ["pass", "best"])
@pytest.mark.parametrize(("problems", "samples", "k"), [(4, 8, 8), (5, 4, 2), (6, 3, 3)])
def test_mean_squares_are_those_of_all_counts(problems: int, samples: int, k: int, kind: str) -> None:
    """Every multiset of counts, by brute force: the range of those that give both numbers."""
    metric = stats.pass_at_k if kind == "pass" else stats.best_at_k
    rows = [
        (sum(counts), float(np.mean(metric(samples, list(counts), k))), float(np.mean(np.square(counts)) / samples**2))
        for counts in itertools.combinations_with_replacement(range(samples + 1), problems)
    ]
    for right, other, _ in rows[:: max(1, len(rows) // 12)]:
        fits = [square for total, value, square in rows if total == right and abs(value - other) <= 0.01]
        found = published.mean_square(problems, samples, right / (problems * samples), other, k, kind, (0.0, 0.01))
        assert found == pytest.approx((min(fits), max(fits)))
    assert published.mean_square(4, 8, 0.5, 0.2, 8, kind, (0.0, 0.001)) is None  # pass@k is at least pass@1


def test_what_rows_share_adds_up_in_the_worst_case() -> None:
    found = [Parts(0.01, 0.04, 0.09)] * 4
    names = ["x", "x", "y", "y"], ["m", "n", "m", "n"]
    best, worst = (published.pooled(found, *names, case) for case in ("best", "worst"))
    assert (best.answers, best.problems, best.runs) == pytest.approx((0.01 / 4, 0.04 / 4, 0.09 / 4))
    # Two groups of two, of which each adds its standard deviations: 2 (2 s)^2 / 16.
    assert (worst.answers, worst.problems, worst.runs) == pytest.approx((0.01 / 4, 0.04 / 2, 0.09 / 2))
    # Satterthwaite: (4 v)^2 / (4 v^2 / 3) for four rows of equal variance v.
    rows = [Parts(0.01, 0.04, 0.09, df=3.0)] * 4
    assert published.pooled(rows, "wxyz", "klmn", "best").df == pytest.approx(12)


def test_problems_needed_are_the_fewest_that_find_the_effect() -> None:
    number = published.problems_needed(0.06, Parts(0.001, 0.0004, 0.0002), 50, share=0.5)
    assert number is not None
    reach = [math.sqrt(0.0001 + 0.0009 * 50 / n) * 2.8016 for n in (number, number - 1)]
    assert reach[0] <= 0.06 < reach[1]
    assert published.problems_needed(0.03, Parts(0.001, 0.0004, 0.0002), 50) is None


def test_multiples_are_printed_rounded_or_truncated() -> None:
    assert [published.multiple(value, 240, 1e-4) for value in (0.4041, 0.4042, 0.4014)] == [97, 97, None]
    assert [published.multiple(*given) for given in ((0.667, 30, 1e-3), (0.5, 7, 0.1), (0.02, 70, 0.01))] == [20, 4, 2]
