"""The statistics against values by hand, published tables, brute force, scipy and simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from scipy import stats as scipy_stats

from mcpo_cli.statistics import power, published, stats, variance
from mcpo_cli.statistics.power import STAGES, look_level
from mcpo_cli.statistics.published import Assumed, PublishedArm

COUNTS = st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))


@given(COUNTS)
def test_pass_at_k_is_the_ratio_of_binomials(counts: tuple[int, int, int]) -> None:
    n, c, k = counts
    assert stats.pass_at_k(n, c, k) == pytest.approx(1 - math.comb(n - c, k) / math.comb(n, k), abs=1e-12)


def test_pass_at_k_of_many_samples_agrees_with_scipy() -> None:
    n, c, k = 100_000, np.array([1, 50, 5_000]), 512
    assert stats.pass_at_k(n, c, k) == pytest.approx(scipy_stats.hypergeom.sf(0, n, c, k), rel=1e-9)


def test_pass_at_k_without_enough_samples_is_nan_where_they_lack() -> None:
    assert math.isnan(stats.pass_at_k(4, 4, 8))
    assert np.isnan(stats.pass_at_k([4, 8, 0], [1, 1, 0], 8)).tolist() == [True, False, True]


def test_arrays_broadcast() -> None:
    assert stats.pass_at_k(4, [[0], [1]], [1, 2]) == pytest.approx(np.array([[0, 0], [0.25, 0.5]]))
    assert stats.best_at_k(4, [[0], [1]], [1, 2]) == pytest.approx(np.array([[0, 0], [0.25, 1 - 0.75**2]]))


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (8, 3, 2), (5, 2, 6)])
def test_best_at_k_is_the_mean_over_all_draws_with_replacement(n: int, c: int, k: int) -> None:
    draws = list(itertools.product([index < c for index in range(n)], repeat=k))
    assert stats.best_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize("function", [stats.pass_at_k, stats.best_at_k])
@pytest.mark.parametrize(("n", "c", "k"), [(8, 9, 1), (8, -1, 1), (8, 1, 0), (8, 0.5, 1)])
def test_impossible_counts_are_refused(function, n: int, c: float, k: int) -> None:
    with pytest.raises(ValueError, match="must"):
        function(n, c, k)


def test_t_interval_by_hand() -> None:
    interval = stats.t_interval([1.0, 2.0, 3.0])
    assert (interval.mean, interval.n) == (2.0, 3)
    assert interval.half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)


@pytest.mark.parametrize(("diff_S", "sd"), [([0.2], math.nan), ([0.1, 0.3], math.sqrt(0.02))])
def test_one_or_two_seeds_have_a_mean_but_neither_interval_nor_p(diff_S: list[float], sd: float) -> None:
    effect, interval = stats.paired_t(diff_S), stats.t_interval(diff_S)
    assert (effect.mean, interval.mean, effect.sd) == pytest.approx((0.2, 0.2, sd), nan_ok=True)
    assert all(map(math.isnan, (effect.low, effect.high, effect.p, interval.half_width)))


def test_no_seed_is_an_error() -> None:
    with pytest.raises(ValueError, match="non-empty"):
        stats.t_interval([])
    with pytest.raises(ValueError, match="NaN"):
        stats.paired_t([0.1, math.nan, 0.2])


def test_seeds_that_all_agree_have_no_spread_to_test_by() -> None:
    nothing, something = stats.paired_t([0.0] * 4), stats.paired_t([0.1] * 4)
    assert nothing.p == 1
    assert math.isnan(something.p)
    assert math.isnan(nothing.half_width)
    assert math.isnan(something.half_width)


@pytest.mark.parametrize("bound", [-0.02, 0.0, 0.05])
def test_one_sided_p_is_that_of_scipy_for_each_side_of_a_bound(bound: float) -> None:
    data = np.array([0.041, -0.039, 0.048, 0.044, 0.01])
    for side, values, limit in (("greater", data, bound), ("less", -data, -bound)):
        expected = scipy_stats.ttest_1samp(data, bound, alternative=side).pvalue
        assert stats.student(values).p_above(limit) == pytest.approx(expected)


@pytest.mark.parametrize("bound", [0.3, 0.1 + 0.2])
def test_values_that_all_agree_have_a_p_on_their_own_value_alone(bound: float) -> None:
    same = stats.student([0.3] * 3)
    assert (same.p_above(bound), same.p_below(bound)) == (0.5, 0.5)
    assert all(math.isnan(p) for p in (same.p_above(0.2), same.p_below(0.2), same.p_above(0.4)))


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=12))
def test_p_and_interval_of_a_difference_tell_the_same_story(diff_S: list[float]) -> None:
    effect = stats.paired_t(diff_S)
    if not math.isnan(effect.half_width) and abs(effect.p - 0.05) > 1e-6:
        assert (effect.p < 0.05) == (effect.low > 0 or effect.high < 0)


def test_holm_leaves_out_what_has_no_p() -> None:
    assert stats.holm([0.03, math.nan, 0.01]) == pytest.approx([0.03, math.nan, 0.02], nan_ok=True)
    with pytest.raises(ValueError, match=r"0\.\.1"):
        stats.holm([1.5])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.randoms())
def test_holm_only_raises_keeps_the_order_and_is_at_most_bonferroni(p: list[float], random) -> None:
    adjusted = stats.holm(p)
    assert np.all(adjusted >= np.array(p))
    assert np.all(adjusted <= np.minimum(1, len(p) * np.array(p)) + 1e-15)
    order = np.argsort(p, kind="stable")
    assert np.all(np.diff(adjusted[order]) >= 0)
    shuffled = random.sample(range(len(p)), len(p))
    assert stats.holm([p[i] for i in shuffled]) == pytest.approx(adjusted[shuffled])


def brute_majority(answers: list[int | None], k: int) -> float:
    """maj@k by counting all subsets; answer 0 is the correct one, None is no answer."""
    shares = []
    for chosen in itertools.combinations(answers, k):
        votes = {answer: chosen.count(answer) for answer in set(chosen) - {None}}
        winners = [answer for answer, count in votes.items() if count == max(votes.values())]
        shares.append((0 in winners) / len(winners) if winners else 0.0)
    return math.fsum(shares) / len(shares)


@given(st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=8))
def test_maj_at_k_agrees_with_counting_all_subsets(answers: list[int | None]) -> None:
    others = [answers.count(wrong) for wrong in (1, 2, 3)]
    for k in range(1, len(answers) + 1):
        exact = stats.maj_at_k(answers.count(0), others, answers.count(None), k)
        assert exact == pytest.approx(brute_majority(answers, k), abs=1e-12)
    assert math.isnan(stats.maj_at_k(answers.count(0), others, answers.count(None), len(answers) + 1))


@pytest.mark.parametrize("counts", [(-1, [1], 0, 1), (1, [-1], 0, 1), (1, [], -1, 1), (1, [], 0, 0)])
def test_maj_at_k_refuses_impossible_counts(counts: tuple[int, list[int], int, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        stats.maj_at_k(*counts)


@pytest.mark.parametrize(("mean", "rounded"), [(0.0, 1e-17), (1.0, 1 - 2e-16)])
def test_a_share_of_all_or_nothing_is_not_known_exactly_in_spite_of_rounding(mean: float, rounded: float) -> None:
    low, high = stats.share_interval(mean, 0.0, 30, 29)
    assert 0 <= low <= mean <= high <= 1
    assert 0.1 < high - low < 0.2
    assert stats.share_interval(rounded, 1e-33, 30, 29) == pytest.approx((low, high))


def test_share_interval_without_a_variance_is_nan() -> None:
    assert np.isnan(stats.share_interval(0.5, math.nan, 30, 29)).all()
    assert np.isnan(stats.share_interval(0.5, 0.1, 1, 0)).all()


# --- components of variance -------------------------------------------------------------------------------------------


def test_base_policies_by_hand() -> None:
    """Runs .0 .2 of one base policy and .4 .6 of another, the same on both problems: nothing but bases and seeds."""
    found = variance.components(np.repeat([[0.0], [0.2], [0.4], [0.6]], 2, axis=1), [0, 0, 1, 1])
    # Mean squares: seeds 2 (4 * .1^2) / 2 = .04, bases 2 (4 * .2^2) / 1 = .32.
    assert (found.rest, found.problem) == pytest.approx((0, 0))
    assert found.seed**2 == pytest.approx(0.04 / 2)
    assert found.base**2 == pytest.approx((0.32 - 0.04) / (2 * 2))
    assert found.parts["base"] == pytest.approx(0.07 / 2)


@pytest.mark.parametrize("diff_RQ", [np.zeros((1, 5)), np.zeros((3, 1)), np.full((3, 3), np.nan), np.zeros(4)])
def test_what_has_no_components_is_refused(diff_RQ: np.ndarray) -> None:
    with pytest.raises(ValueError, match="at least 2 runs and 2 problems"):
        variance.components(diff_RQ, range(len(diff_RQ)))


# --- power, numbers of seeds and levels of looks ----------------------------------------------------------------------


def test_an_effect_too_small_to_be_found_needs_no_number() -> None:
    assert power.seeds_needed(0.0, 1.0) is None
    assert power.seeds_needed(1e-4, 1.0) is None
    assert power.seeds_needed(1e9, 1.0) == 2


@given(st.floats(0.01, 3), st.integers(2, 200))
def test_the_detectable_effect_is_found_with_that_power(sd: float, seeds: int) -> None:
    effect = power.detectable_effect(sd, seeds)
    assert power.power(effect / sd * math.sqrt(seeds), seeds - 1) == pytest.approx(power.POWER, abs=1e-9)
    needed = power.seeds_needed(-effect * (1 + 1e-6), sd)
    assert needed is not None
    assert needed <= seeds


@pytest.mark.parametrize(("sd", "seeds"), [(0.0, 3), (math.nan, 3), (1.0, 1)])
def test_what_has_no_power_is_refused(sd: float, seeds: int) -> None:
    with pytest.raises(ValueError, match="at least 2 seeds"):
        power.detectable_effect(sd, seeds)
    if seeds > 1:
        with pytest.raises(ValueError, match="standard deviation"):
            power.seeds_needed(0.1, sd)


def test_bounds_of_a_deviation_by_hand_and_by_coverage() -> None:
    # 2 s^2 / chi^2: the 10 % and 90 % quantiles of chi^2 with 2 degrees of freedom are -2 log .9 and -2 log .1.
    low, high = power.sd_bounds(0.03, 3)
    assert (low, high) == pytest.approx((0.03 / math.sqrt(-math.log(0.1)), 0.03 / math.sqrt(-math.log(0.9))))
    sds = np.random.default_rng(0).normal(0, 0.03, (2000, 5)).std(axis=1, ddof=1)
    bounds = [power.sd_bounds(sd, 5) for sd in sds]
    assert 0.77 <= np.mean([one <= 0.03 <= other for one, other in bounds]) <= 0.83


def test_the_range_of_seeds_is_that_of_the_deviation_and_not_of_the_effect_seen() -> None:
    low, high = power.sd_bounds(0.03, 3)
    assert power.seeds_range(0.02, 0.03, 3) == (power.seeds_needed(0.02, low), power.seeds_needed(0.02, high))
    assert power.seeds_range(1e-6, 0.03, 3) == (None, None)


def test_a_difference_that_is_not_there_is_found_in_less_than_a_twentieth_of_the_cases() -> None:
    diff_NS = np.random.default_rng(0).normal(size=(100_000, max(STAGES)))
    p_NT = np.stack([scipy_stats.ttest_1samp(diff_NS[:, :seeds], 0, axis=1).pvalue for seeds in STAGES], axis=1)
    levels = [look_level(stage, len(STAGES)) for stage in range(1, len(STAGES) + 1)]
    assert 0.040 <= np.any(p_NT <= levels, axis=1).mean() <= 0.046
    # Three looks at .05 each.
    assert 0.11 <= np.any(p_NT <= 0.05, axis=1).mean() <= 0.12


def test_declared_looks_spend_what_obrien_and_fleming_spend() -> None:
    """The spent levels after each look, by hand: 2 - 2 Phi(1.96 / sqrt(i / n))."""
    for looks, spent in ((1, [0.05]), (2, [0.00557, 0.05]), (4, [0.00009, 0.00557, 0.02362, 0.05])):
        levels = [look_level(look, looks) for look in range(1, looks + 1)]
        assert np.cumsum(levels) == pytest.approx(spent, abs=1e-5)
    for wrong in ((0, 3), (4, 3)):
        with pytest.raises(ValueError, match="look"):
            look_level(*wrong)


# --- the error of a difference of published numbers -------------------------------------------------------------------


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
    for scope, expected in (
        ("answers", answers),
        ("problems", answers + problems),
        ("trainings", answers + problems + runs),
    ):
        assert published.error(*sides, assumed, scope, "plausible", paired=True)[0] ** 2 == pytest.approx(expected)


def test_reported_deviations_over_runs_are_welchs_test() -> None:
    assumed = exactly()
    sides = arm(0.6, assumed, seeds=5, run_sd=0.03), arm(0.5, assumed, seeds=3, run_sd=0.05)
    error, df = published.error(*sides, assumed, "trainings", "plausible", paired=True)
    welch = scipy_stats.ttest_ind_from_stats(0.6, 0.03, 5, 0.5, 0.05, 3, equal_var=False)
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
