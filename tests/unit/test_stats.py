"""The statistics against values by hand, brute force and scipy, and their nominal coverage."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from mcpo_cli.statistics import stats

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


def test_t_interval_by_hand_and_by_scipy() -> None:
    interval = stats.t_interval([1.0, 2.0, 3.0])
    assert (interval.mean, interval.n) == (2.0, 3)
    assert interval.half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    data = [0.41, 0.39, 0.48, 0.44]
    expected = scipy_stats.ttest_1samp(data, 0).confidence_interval(0.95)
    ours = stats.t_interval(data)
    assert (ours.low, ours.high) == pytest.approx((expected.low, expected.high))


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


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_a_share_of_all_or_nothing_is_not_known_exactly(mean: float) -> None:
    low, high = stats.share_interval(mean, 0.0, 30, 29)
    assert 0 <= low <= mean <= high <= 1
    assert 0.05 < high - low < 0.2


@pytest.mark.parametrize(("mean", "exactly"), [(1 - 2e-16, 1.0), (1e-17, 0.0)])
def test_share_interval_of_all_alike_has_a_width_in_spite_of_rounding(mean: float, exactly: float) -> None:
    found = stats.share_interval(mean, 1e-33, 30, 29)
    assert found == pytest.approx(stats.share_interval(exactly, 0.0, 30, 29))
    assert found[1] - found[0] > 0.1


def test_share_interval_without_a_variance_is_nan() -> None:
    assert np.isnan(stats.share_interval(0.5, math.nan, 30, 29)).all()
    assert np.isnan(stats.share_interval(0.5, 0.1, 1, 0)).all()
