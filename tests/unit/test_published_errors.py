"""The error of a difference of published numbers (`statistics/published.py`), against formulas by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from mcpo_cli.statistics import published
from mcpo_cli.statistics.published import Assumed, PublishedArm


def exactly(spread: float = 0.0, correlation: float = 1.0, run_sd: float = 0.0) -> Assumed:
    """Assumptions without a range."""
    return Assumed((spread,) * 3, (correlation,) * 3, (run_sd,) * 3)


def arm(
    mean: float, assumed: Assumed, problems: int = 30, sets: float = 8, seeds: int = 1, **more: float
) -> PublishedArm:
    return PublishedArm(mean, problems, sets, assumed.spread, seeds, **more)


def test_terms_are_those_of_binomials_by_hand() -> None:
    alike, apart = exactly(), exactly(spread=1.0)
    error, df = published.error(arm(0.6, alike), arm(0.5, alike), alike, "answers", "plausible", paired=True)
    assert (error, df) == (pytest.approx(math.sqrt(0.6 * 0.4 / 240 + 0.5 * 0.5 / 240)), math.inf)
    sides = arm(0.6, apart, 30), arm(0.5, apart, 50)
    assert published.error(*sides, apart, "answers", "plausible", paired=False)[0] == 0
    error, _ = published.error(*sides, apart, "problems", "plausible", paired=False)
    assert error == pytest.approx(math.sqrt(0.6 * 0.4 / 30 + 0.5 * 0.5 / 50))
    assumed = exactly(spread=0.5, correlation=0.8, run_sd=0.02)
    sides = arm(0.5, assumed, 100, 4, 2), arm(0.5, assumed, 100, 4, 2)
    answers, problems, runs = 2 * 0.125 / 800, 2 * 0.125 * 0.2 / 100, 2 * 0.0004 / 2
    for scope, variance in (
        ("answers", answers),
        ("problems", answers + problems),
        ("trainings", answers + problems + runs),
    ):
        assert published.error(*sides, assumed, scope, "plausible", paired=True)[0] ** 2 == pytest.approx(variance)


def test_reported_deviations_over_runs_are_welchs_test() -> None:
    assumed = exactly()
    sides = arm(0.6, assumed, seeds=5, run_sd=0.03), arm(0.5, assumed, seeds=3, run_sd=0.05)
    error, df = published.error(*sides, assumed, "trainings", "plausible", paired=True)
    welch = stats.ttest_ind_from_stats(0.6, 0.03, 5, 0.5, 0.05, 3, equal_var=False)
    assert 0.1 / error == pytest.approx(welch.statistic)
    assert 2 * special.stdtr(df, -0.1 / error) == pytest.approx(welch.pvalue)


@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95), st.booleans(), st.sampled_from(published.SCOPES))
def test_best_is_at_most_plausible_and_worst_at_least(a: float, b: float, paired: bool, scope: published.Scope) -> None:
    assumed = Assumed()
    sides = arm(a, assumed), arm(b, assumed)
    errors = [published.error(*sides, assumed, scope, case, paired=paired)[0] for case in published.CASES]
    assert errors == sorted(errors)


def test_an_error_over_problems_has_one_spread_behind_it() -> None:
    problem, answer, problems, sets = 0.09, 0.15, 50, 4
    error = math.sqrt((problem + answer / sets) / problems)
    assert published.spread_of_error(0.6, error, problems, sets) == pytest.approx(problem / (problem + answer))


def test_multiples_are_printed_rounded_or_truncated() -> None:
    assert [published.is_share(value, 240, 1e-4) for value in (0.4041, 0.4042, 0.4014)] == [True, True, False]
    assert [published.is_share(*given) for given in ((0.667, 30, 1e-3), (0.5, 3, 0.1), (0.02, 70, 0.01))] == [
        True,
        False,
        True,
    ]
