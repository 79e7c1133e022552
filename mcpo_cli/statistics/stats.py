"""The statistics of every table: pure functions with explicit generators, so equal inputs give equal digits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LEAST = 3
"""Fewest seeds or clusters that get an interval or a p-value: two show almost nothing of their spread."""
ROUNDING = 1e-12
"""Differences of shares below this are rounding errors."""


def pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> np.float64 | Floats:
    """Probability that k samples drawn WITHOUT replacement from n, of which c are correct, include a correct one.

    1 - C(n-c, k) / C(n, k): unbiased for the probability that k new samples include a correct one (Chen et al. 2021,
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
    """Probability that k samples drawn WITH replacement from n, of which c are correct, include a correct one.

    1 - (1 - c/n)^k: the expectation of the bootstrap behind verl's `best@k/mean`. The paper (arXiv 2604.16972) reports
    it as pass@8: its values are not multiples of 1/30. Biased low as an estimate of pass@k.
    Arguments, result and errors as in `pass_at_k`; NaN only where n = 0.
    """
    n_, c_, k_ = _counts(n, c, k)
    wrong = (n_ - c_) / np.maximum(n_, 1)
    return np.where(n_ == 0, np.nan, 1.0 - wrong**k_)[()]


def maj_at_k(correct: int, others: Sequence[int], blank: int, k: int) -> float:
    """Probability that the most frequent answer of k samples, drawn without replacement, is the correct one.

    maj@k (self-consistency, Wang et al. 2022, arXiv 2203.11171), exact over all subsets: equally frequent answers share
    the win, and samples without an answer do not vote. NaN if there are fewer than k samples.

    Args:
        correct: number of samples with the correct answer.
        others: number of samples with each distinct incorrect answer.
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
        # ways[t][s]: choices of s other samples in which t incorrect answers get `votes` votes and no answer gets more.
        # An answer of fewer samples than `votes` cannot win: its samples count as blank ones.
        ways = [[math.comb(blank + sum(size for size in others if size < votes), s) for s in range(rest + 1)]]
        for size in others:
            if size >= votes:
                ways = _add_answer(ways, size, votes)
        shares = sum(row[rest] / (1 + ties) for ties, row in enumerate(ways))
        won += math.comb(correct, votes) * shares
    return won / math.comb(n, k)


def _add_answer(ways: list[list[int]], size: int, votes: int) -> list[list[int]]:
    """Extend `ways` by one incorrect answer that `size` samples gave; at most `votes` of these are chosen."""
    extended = [[0] * len(ways[0]) for _ in range(len(ways) + 1)]
    for ties, row in enumerate(ways):
        for count in range(min(size, votes) + 1):
            factor, to = math.comb(size, count), extended[ties + (count == votes)]
            for s in range(len(row) - count):
                to[s + count] += factor * row[s]
    return extended


def _counts(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> list[Ints]:
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


IDENTICAL = "all values are identical, so they have no variance to test by"
"""The reason why a contrast of at least LEAST seeds with equal differences other than 0 has no p."""


@dataclass(frozen=True)
class Student:
    """An estimate with a standard error, judged by Student's t."""

    mean: float
    error: float
    """Standard error of the mean."""
    df: float
    """Degrees of freedom."""
    n: int
    """Number of independent values: seeds, or clusters."""

    def interval(self, level: float = 0.95) -> Interval:
        """The interval of the mean; its half-width is NaN below LEAST values."""
        if self.n < LEAST:
            return Interval(self.mean, math.nan, self.n)
        return Interval(self.mean, float(special.stdtrit(self.df, 0.5 + level / 2)) * self.error, self.n)

    def p_above(self, bound: float = 0.0) -> float:
        """One-sided p: how likely a mean as high as this one is if the true mean is `bound`.

        NaN below LEAST values. Values that agree to rounding errors have no variance to test by, whatever their number:
        p is 0.5 if they agree on `bound` and NaN otherwise.
        """
        distance = self.mean - bound
        if self.n < LEAST or (self.error <= ROUNDING and abs(distance) > ROUNDING):
            return math.nan
        if self.error <= ROUNDING:
            return 0.5
        return float(special.stdtr(self.df, -distance / self.error))

    def p_below(self, bound: float = 0.0) -> float:
        """One-sided p of a mean as low as this one; see `p_above`."""
        return replace(self, mean=-self.mean).p_above(-bound)


def student(values: Sequence[float] | Floats) -> Student:
    """The mean of independent values, one per seed, with its standard error (NaN for one value).

    Raises:
        ValueError: there are no values.
    """
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or not data.size:
        raise ValueError("values must be a non-empty list of numbers")
    error = float(data.std(ddof=1)) / math.sqrt(data.size) if data.size > 1 else math.nan
    return Student(float(data.mean()), error, data.size - 1, data.size)


def t_interval(values: Sequence[float] | Floats) -> Interval:
    """Student's 95 % t-interval for the mean of `values`, one value per seed.

    Exact for any number of normal values; fewer than LEAST values give no interval (NaN half-width).

    Raises:
        ValueError: there are no values.
    """
    return student(values).interval()


def share_interval(mean: float, variance: float, n: int, df: float) -> tuple[float, float]:
    """Wilson's 95 % interval for a mean of shares that do not come from one binomial draw.

    The interval uses the effective number of trials, mean (1 - mean) / variance (Korn and Graubard 1998, Survey
    Methodology 24, 193-201), and t in place of z (Dean and Pagano 2015, J. Surv. Stat. Methodol. 3, 484-503). If the
    mean is 0 or 1 or the variance is 0, it uses `n` trials, so that the interval never has width zero. Coverage over 30
    to 128 problems, 95 % nominal: 95 % at means around .5; 89 to 93 % at .03 and mostly at .98, where a few problems
    decide.

    Args:
        mean: in 0..1.
        variance: variance of that mean; NaN if it cannot be estimated. A variance of rounding errors counts as 0.
        n: number of trials behind the mean.
        df: degrees of freedom of `variance`; infinite for the normal quantile.

    Returns:
        Lower and upper bound in 0..1; NaN if the variance is NaN or df is below 1.
    """
    if math.isnan(variance) or df < 1:
        return math.nan, math.nan
    varies = variance > ROUNDING**2 and ROUNDING < mean < 1 - ROUNDING
    trials = mean * (1 - mean) / variance if varies else n
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

    def columns(self) -> dict[str, float]:
        """The effect as columns of a frame."""
        ends = {"mean": self.mean, "low": self.low, "high": self.high, "half_width": self.half_width}
        return {**ends, "sd": self.sd, "p": self.p, "seeds": self.n}


def paired_t(diff_S: Sequence[float] | Floats) -> Effect:
    """The paired t-test of a method against a baseline: the only p-value of a contrast, wherever it is shown.

    It keeps its level for differences that are normal over seeds, with any number of seeds. A bootstrap of 3 seeds does
    not: it cannot leave the range of the three values and rejects a true null in a fifth of the cases at level .05. It
    treats only seeds as sampled: the result holds for these problems and, if seeds share them, for these base policies
    (`variance.py` estimates the variance that other base policies would add).

    Args:
        diff_S: method minus baseline, one value per seed; a seed's value is its mean over problems.

    Returns:
        The effect. Seeds that agree to rounding errors have no variance to test by: p is 1 if they agree on 0 and NaN
        otherwise (IDENTICAL explains it).

    Raises:
        ValueError: there are no values, or one is NaN.
    """
    diff = np.asarray(diff_S, dtype=np.float64)
    if np.isnan(diff).any():
        raise ValueError("differences must not be NaN")
    test = student(diff)
    sd = test.error * math.sqrt(test.n)
    half_width = math.nan if test.error <= ROUNDING else test.interval().half_width
    return Effect(test.mean, half_width, test.n, sd, 2 * min(test.p_above(), test.p_below()))


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
