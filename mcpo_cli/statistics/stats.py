"""The statistics behind every table: pure functions with explicit generators, so equal inputs give equal digits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]
LEAST = 3
"""Fewest seeds or clusters that get an interval or a p-value: the spread of two says next to nothing."""
ROUNDING = 1e-12
"""Differences of shares below this are rounding errors."""


def pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> np.float64 | Floats:
    """Probability that k samples drawn WITHOUT replacement from n, of which c are right, include a right one.

    1 - C(n-c, k) / C(n, k): unbiased for the probability that k new samples include a right one (Chen et al. 2021,
    arXiv 2107.03374, Eq. 1). NaN where n < k: fewer than k samples cannot estimate it.

    Args:
        n, c, k: integers or integer arrays that broadcast; 0 <= c <= n, k >= 1.

    Returns:
        A float for scalars, else an array of the broadcast shape.

    Raises:
        ValueError: counts are not integers or out of range.
    """
    n_, c_, k_ = _counts(n, c, k)
    # The ratio of binomials is a product of k factors <= 1, which needs no factorials and cannot overflow.
    wrong = np.ones(n_.shape)
    for i in range(int(k_.max(initial=0))):
        wrong *= np.where(i < k_, np.maximum(n_ - c_ - i, 0) / np.maximum(n_ - i, 1), 1.0)
    return np.where(n_ < k_, np.nan, 1.0 - wrong)[()]


def best_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> np.float64 | Floats:
    """Probability that k samples drawn WITH replacement from n, of which c are right, include a right one.

    1 - (1 - c/n)^k: the expectation of the bootstrap behind verl's `best@k/mean`. The paper (arXiv 2604.16972) reports
    it as pass@8: its values are not multiples of 1/30. Biased low as an estimate of pass@k.
    Arguments, result and errors as in `pass_at_k`; NaN only where n = 0.
    """
    n_, c_, k_ = _counts(n, c, k)
    wrong = (n_ - c_) / np.maximum(n_, 1)
    return np.where(n_ == 0, np.nan, 1.0 - wrong**k_)[()]


def maj_at_k(correct: int, others: Sequence[int], blank: int, k: int) -> float:
    """Probability that the most frequent answer of k samples, drawn without replacement, is the right one.

    maj@k (self-consistency, Wang et al. 2022, arXiv 2203.11171), exact over all subsets: equally frequent answers share
    the win, and samples without an answer do not vote. NaN if there are fewer than k samples.

    Args:
        correct: number of samples with the right answer.
        others: number of samples with each distinct wrong answer.
        blank: number of samples without an answer.
        k: number of samples that vote.

    Raises:
        ValueError: a count is below 0, or k is below 1.
    """
    if min(correct, blank, *others, k - 1) < 0:
        raise ValueError("counts must be at least 0 and k at least 1")
    n = correct + sum(others) + blank
    if n < k:
        return math.nan
    won = 0.0
    for votes in range(1, min(correct, k) + 1):
        rest = k - votes
        # ways[t][s]: choices of s other samples in which t wrong answers get `votes` votes and no answer gets more.
        ways = [[math.comb(blank, s) for s in range(rest + 1)]]
        for size in others:
            ways = _add_answer(ways, size, votes)
        shares = sum(row[rest] / (1 + ties) for ties, row in enumerate(ways))
        won += math.comb(correct, votes) * shares
    return won / math.comb(n, k)


def _add_answer(ways: list[list[int]], size: int, votes: int) -> list[list[int]]:
    """Extend `ways` by one wrong answer that `size` samples gave; at most `votes` of these are chosen."""
    extended = [[0] * len(ways[0]) for _ in range(len(ways) + 1)]
    for ties, row in enumerate(ways):
        for chosen in range(min(size, votes) + 1):
            factor, to = math.comb(size, chosen), extended[ties + (chosen == votes)]
            for s in range(len(row) - chosen):
                to[s + chosen] += factor * row[s]
    return extended


def _counts(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> list[NDArray[np.int64]]:
    arrays = [np.asarray(value) for value in (n, c, k)]
    if not all(np.issubdtype(array.dtype, np.integer) for array in arrays):
        raise ValueError("n, c and k must be integers")
    n_, c_, k_ = (array.astype(np.int64) for array in np.broadcast_arrays(*arrays))
    if np.any(c_ < 0) or np.any(c_ > n_):
        raise ValueError("c must lie in 0..n")
    if np.any(k_ < 1):
        raise ValueError("k must be at least 1")
    return [n_, c_, k_]


@dataclass(frozen=True)
class Interval:
    """A mean over `n` seeds and the half-width of its interval (NaN below LEAST)."""

    mean: float
    half_width: float
    n: int

    @property
    def low(self) -> float:
        """Lower bound."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper bound."""
        return self.mean + self.half_width


def t_interval(values: Sequence[float] | Floats, level: float = 0.95) -> Interval:
    """Student's t-interval for the mean of `values`, one value per seed.

    Exact for any number of normal values; fewer than LEAST values give no interval (NaN half-width).

    Raises:
        ValueError: there are no values.
    """
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or not data.size:
        raise ValueError("values must be a non-empty list of numbers")
    if data.size < LEAST:
        return Interval(float(data.mean()), math.nan, data.size)
    quantile = special.stdtrit(data.size - 1, 0.5 + level / 2)
    return Interval(float(data.mean()), float(quantile * data.std(ddof=1) / math.sqrt(data.size)), data.size)


def share_interval(mean: float, variance: float, n: int, df: float) -> tuple[float, float]:
    """Wilson's 95 % interval for a mean of shares that do not come from one binomial draw.

    The interval uses the effective number of trials, mean (1 - mean) / variance (Korn and Graubard 1998, Survey
    Methodology 24, 193-201), and t in place of z (Dean and Pagano 2015, J. Surv. Stat. Methodol. 3, 484-503). If the
    mean is 0 or 1 or the variance is 0, it uses `n` trials, so that the interval never has width zero. Coverage over 30
    to 128 problems, 95 % nominal: 95 % at means around .5; 89 to 93 % at .03 and mostly at .98, where a few problems
    decide.

    Args:
        mean: in 0..1.
        variance: variance of that mean; NaN if it cannot be estimated.
        n: number of trials behind the mean.
        df: degrees of freedom of `variance`; infinite for the normal quantile.

    Returns:
        Lower and upper bound in 0..1; NaN if the variance is NaN or df is below 1.
    """
    if math.isnan(variance) or df < 1:
        return math.nan, math.nan
    trials = mean * (1 - mean) / variance if variance > 0 and 0 < mean < 1 else n
    t2 = float(special.stdtrit(df, 0.975)) ** 2
    center = (mean + t2 / (2 * trials)) / (1 + t2 / trials)
    half = math.sqrt(t2 * mean * (1 - mean) / trials + (t2 / (2 * trials)) ** 2) / (1 + t2 / trials)
    return max(0.0, center - half), min(1.0, center + half)


@dataclass(frozen=True)
class Effect(Interval):
    """A paired difference over seeds: its 95 % t-interval, standard deviation, and the two-sided p of the t-test.

    The interval has no width (NaN) also where all seeds differ by the same amount.
    """

    sd: float
    """Standard deviation over the seeds; NaN for one seed."""
    p: float
    """NaN below LEAST seeds, or where all seeds differ by the same amount other than 0."""


def paired_t(diff_S: Sequence[float] | Floats) -> Effect:
    """The paired t-test of a method against a baseline: the one p-value of a contrast, wherever it is shown.

    It keeps its level for differences that are normal over seeds, with any number of them. A bootstrap of 3 seeds does
    not: it cannot leave the range of the three values and rejects a true null in a fifth of the cases at level .05.
    Seeds are the only thing it samples: the result holds for these problems and, where seeds share them, for these
    base policies (`variance.py` says what others would add).

    Args:
        diff_S: method minus baseline, one value a seed; a seed's value is its mean over problems.

    Returns:
        The effect. Seeds that agree to rounding errors have no spread to judge a difference by: p is 1 if they agree
        on 0 and NaN otherwise.

    Raises:
        ValueError: there are no values, or one is NaN.
    """
    diff = np.asarray(diff_S, dtype=np.float64)
    if np.isnan(diff).any():
        raise ValueError("differences must not be NaN")
    interval = t_interval(diff)
    sd = float(diff.std(ddof=1)) if diff.size > 1 else math.nan
    if diff.size < LEAST:
        return Effect(interval.mean, math.nan, diff.size, sd, math.nan)
    if sd <= ROUNDING:
        return Effect(interval.mean, math.nan, diff.size, sd, 1.0 if abs(interval.mean) <= ROUNDING else math.nan)
    p = 2 * p_above(diff if interval.mean > 0 else -diff)
    return Effect(interval.mean, interval.half_width, diff.size, sd, p)


def p_above(values: Sequence[float] | Floats, bound: float = 0.0) -> float:
    """One-sided p of Student's t-test: how likely a mean as high as that of `values` is if the true one is `bound`.

    Values that agree to rounding errors leave no doubt: p is 0 above `bound`, 1 below it and 0.5 on it.

    Args:
        values: at least two, one a seed.
        bound: what the true mean is claimed to be above.
    """
    data = np.asarray(values, dtype=np.float64)
    distance, sd = float(data.mean()) - bound, float(data.std(ddof=1))
    if sd <= ROUNDING:
        return 0.5 if abs(distance) <= ROUNDING else float(distance < 0)
    return float(special.stdtr(data.size - 1, -distance / sd * math.sqrt(data.size)))


def rank_correlation(x_N: Sequence[float] | Floats, y_N: Sequence[float] | Floats) -> tuple[Interval, float]:
    """Spearman's rank correlation with its 95 % interval, and the one-sided p of one as high if the true one is 0.

    Ties have their mean rank. p is Student's t with N - 2 degrees of freedom, close from 10 points on; the interval is
    the same test's, so that it excludes 0 where the two-sided p is below .05. Without variation in x or y the
    correlation is 0.

    Args:
        x_N: at least LEAST numbers.
        y_N: as many.
    """
    # Imported here because it takes most of a second, and the other functions do without.
    from scipy.stats import rankdata

    rank_N, other_N = (rankdata(values) - (len(values) + 1) / 2 for values in (x_N, y_N))
    scale = math.sqrt(float(rank_N @ rank_N) * float(other_N @ other_N))
    rho = float(rank_N @ other_N) / scale if scale > ROUNDING else 0.0
    df = len(rank_N) - 2
    error = math.sqrt(max(1 - rho**2, ROUNDING) / df)
    half_width = float(special.stdtrit(df, 0.975)) * error
    return Interval(rho, half_width, len(x_N)), float(special.stdtr(df, -rho / error))


def holm(p_values: Sequence[float] | Floats) -> Floats:
    """Holm's step-down adjusted p-values, in the order given (Holm 1979, Scand. J. Statist. 6, 65-70).

    Rejecting where the result is <= alpha limits the probability of any false rejection in the family to alpha, under
    any dependence. NaN (no test was possible) stays NaN and does not count in the family.

    Raises:
        ValueError: a p-value is outside 0..1.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if np.any((p < 0) | (p > 1)):
        raise ValueError("p-values must lie in 0..1")
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    adjusted = np.full(p.shape, np.nan)
    factors = np.arange(order.size, 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * factors))
    return adjusted
