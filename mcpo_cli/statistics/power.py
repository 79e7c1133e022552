"""Planning of tests: power of the paired t-test, the seeds that an effect needs, and levels of several looks at data.

Power is exact for differences that are normal over seeds: the test statistic then has a noncentral t distribution with
S - 1 degrees of freedom and noncentrality effect / sd * sqrt(S).

statsmodels (a wheel of 12 MB) would replace only ten lines of formulas here, Holm's procedure in `stats.py` and, by a
fit that may not converge, the sums of squares in `variance.py`. Tests compare with its numbers.

Several looks at growing data share the level .05 (`look_level`): somebody declares look i of n, or seeds are trained in
STAGES, of which stage i is look i. Testing at level .05 after 4, 8 and 12 seeds finds a difference that does not exist
in 11 % of the cases. The levels of all looks sum to .05, so that even the union of the tests keeps it, also for
Holm-adjusted p-values of any number of dependent differences.
"""

import math
from bisect import bisect_left
from collections.abc import Callable

from scipy import special

ALPHA = 0.05
"""Level of every test."""
POWER = 0.8
"""Probability with which an effect is to be found."""
MOST_SEEDS = 10_000
"""Largest number of seeds that `seeds_needed` tries."""
STAGES = (4, 8, 12)
"""Number of seeds after each stage: equal steps of data."""


def power(noncentrality: float, df: float, level: float = ALPHA) -> float:
    """Probability that a two-sided t-test at `level` rejects.

    Args:
        noncentrality: the true mean in standard errors, at least 0: effect / sd * sqrt(seeds) for paired runs.
        df: degrees of freedom, at least 1; they need not be an integer.
    """
    critical = float(special.stdtrit(df, 1 - level / 2))
    # Both tails count: the test also rejects for a significant result of the wrong sign. NaN means that a series
    # underflowed, at probabilities below 1e-9 in the tail of the wrong sign and far lower in the other.
    below, wrong = (float(special.nctdtr(df, noncentrality, bound)) for bound in (critical, -critical))
    return 1 - (0 if math.isnan(below) else below) + (0 if math.isnan(wrong) else wrong)


def least_p(differing: int) -> float:
    """The smallest two-sided p of an exact sign test: all of the problems that differ do so in one direction."""
    return float(min(1.0, 2.0 ** (1 - differing)))


def fewest_differing(level: float) -> int:
    """The fewest problems that must differ for any result to be significant: 6 at level .05."""
    return next(number for number in range(1, MOST_SEEDS) if least_p(number) <= level)


def noncentrality(df: float, level: float = ALPHA) -> float:
    """The noncentrality at which `power` at `level` is POWER: the smallest effect that is found, in standard errors."""
    low, high = 0.0, 1.0
    while power(high, df, level) < POWER:
        high *= 2
    # Bisection to the last bit: importing scipy.optimize takes a tenth of the time of `mcpo compare`.
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if power(middle, df, level) < POWER else (low, middle)
    return high


def detectable_effect(sd: float, seeds: int) -> float:
    """The smallest mean difference that a paired t-test over `seeds` detects with probability POWER.

    Args:
        sd: standard deviation of the paired difference over seeds, above 0.
        seeds: number of pairs of runs, at least 2.

    Raises:
        ValueError: there are fewer than 2 seeds, or sd is not above 0.
    """
    _check(sd, seeds)
    return noncentrality(seeds - 1) * sd / math.sqrt(seeds)


def seeds_needed(effect: float, sd: float) -> int | None:
    """The fewest seeds with which a paired t-test detects `effect` with probability POWER; None above MOST_SEEDS.

    sd is treated as known; `seeds_range` is for a deviation that was estimated from a few seeds.

    Raises:
        ValueError: sd is not above 0.
    """
    _check(sd)
    ratio = abs(effect) / sd

    def enough(seeds: int) -> bool:
        return power(ratio * math.sqrt(seeds), seeds - 1) >= POWER

    return fewest(1, MOST_SEEDS, enough)


def seeds_text(seeds: int | None) -> str:
    """A number of seeds from `seeds_needed` as text."""
    return f">{MOST_SEEDS}" if seeds is None else str(seeds)


def fewest(low: int, high: int, enough: Callable[[int], bool]) -> int | None:
    """The least number above `low`, up to `high`, that is enough; None if `high` is not. `enough` must be monotonic."""
    if not enough(high):
        return None
    return low + 1 + bisect_left(range(low + 1, high), True, key=enough)


def sd_bounds(sd: float, seeds: int) -> tuple[float, float]:
    """The 80 % interval of the true standard deviation if `seeds` values gave `sd`; exact for normal values.

    Raises:
        ValueError: there are fewer than 2 seeds, or sd is not above 0.
    """
    _check(sd, seeds)
    df = seeds - 1
    low, high = (sd * math.sqrt(df / special.chdtri(df, tail)) for tail in (0.1, 0.9))
    return low, high


def seeds_range(effect: float, sd: float, seeds: int) -> tuple[int | None, int | None]:
    """`seeds_needed` at both ends of `sd_bounds`: the seeds that `effect` needs, given a deviation seen in `seeds`.

    `effect` is a difference chosen beforehand: the smallest of interest, or a published one. Do not use the
    difference that the same seeds show: from 3 seeds, where 6 are needed, it asks for 4 to 39 (5 to 95 %).
    """
    low, high = sd_bounds(sd, seeds)
    return seeds_needed(effect, low), seeds_needed(effect, high)


def _check(sd: float, seeds: int = 2) -> None:
    if seeds < 2 or not sd > 0:
        raise ValueError("power needs at least 2 seeds and a standard deviation above 0")


def look_level(look: int, looks: int) -> float:
    """The largest adjusted p-value that decides at look `look` of `looks` equal steps of data, as somebody declares.

    It is the increment of O'Brien and Fleming's spending function (1979, Biometrics 35, 549-556; Lan and DeMets 1983,
    Biometrika 70, 659-663), alpha(t) = 2 - 2 Phi(z / sqrt(t)) at the share t of the data. Levels sum to .05 rather than
    relying on the dependence of the looks: early looks cost very little, and the last of 2, 3 and 5 looks has level
    .044, .034 and .022.

    Raises:
        ValueError: look is not in 1..looks.
    """
    if not 1 <= look <= looks:
        raise ValueError("a look must lie in 1..looks")
    return _spent(look / looks) - _spent((look - 1) / looks)


def _spent(share: float) -> float:
    """The level that is spent once this share of the data has been seen."""
    return float(2 * special.ndtr(special.ndtri(ALPHA / 2) / math.sqrt(share))) if share > 0 else 0.0
