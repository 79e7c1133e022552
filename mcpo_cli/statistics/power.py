"""What a number of seeds can show: power of the paired t-test, the effect it detects, the seeds an effect needs.

All of it is exact for differences that are normal over seeds: the test's statistic then has a noncentral t
distribution with S - 1 degrees of freedom and noncentrality effect / sd * sqrt(S).

Written here, as Holm's procedure is in `stats.py`: statsmodels (a wheel of 12 MB) would replace ten lines of
formulas. What would stay are the checks, the search for a whole number of seeds, and the values that are not defined.
"""

import math

import numpy as np
from scipy import optimize, special

MOST_SEEDS = 10_000
"""Where the search for a number of seeds ends."""


def power(effect: float, sd: float, seeds: int, alpha: float = 0.05) -> float:
    """Chance that a two-sided paired t-test over `seeds` finds a mean difference of `effect`, of either sign.

    Args:
        effect: mean difference. sd: standard deviation of the paired difference over seeds, above 0.
        seeds: pairs of runs, at least 2. alpha: level of the test.

    Raises:
        ValueError: fewer than 2 seeds, or sd not above 0.
    """
    _check(sd, seeds)
    return _power(abs(effect) / sd * math.sqrt(seeds), seeds, alpha)


def detectable_effect(sd: float, seeds: int, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest mean difference that a paired t-test over `seeds` finds with the chance `power`.

    Arguments and errors as in the function `power`.
    """
    _check(sd, seeds)
    high = 1.0
    while _power(high, seeds, alpha) < power:
        high *= 2
    noncentrality = optimize.brentq(lambda value: _power(value, seeds, alpha) - power, 0.0, high)
    return float(noncentrality) * sd / math.sqrt(seeds)


def seeds_needed(effect: float, sd: float, power: float = 0.8, alpha: float = 0.05) -> int | None:
    """The fewest seeds with which a paired t-test finds `effect` with the chance `power`; None above MOST_SEEDS.

    sd is taken as known: where it comes from few seeds, so does the answer's uncertainty (from 3 seeds the true
    number lies between about a quarter and forty times this one, by the 95 % interval of a variance).

    Raises:
        ValueError: sd not above 0.
    """
    _check(sd)
    ratio = abs(effect) / sd

    def enough(seeds: int) -> bool:
        return _power(ratio * math.sqrt(seeds), seeds, alpha) >= power

    if not enough(MOST_SEEDS):
        return None
    low, high = 1, MOST_SEEDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _check(sd: float, seeds: int = 2) -> None:
    if seeds < 2 or not sd > 0:
        raise ValueError("power needs at least 2 seeds and a standard deviation above 0")


def _power(noncentrality: float, seeds: int, alpha: float) -> float:
    df = seeds - 1
    critical = float(special.stdtrit(df, 1 - alpha / 2))
    # Both tails: a significant result of the wrong sign counts for the test, too. NaN is where a series underflows,
    # at chances below 1e-9 in the tail of the wrong sign and far below that in the other.
    below, wrong = (np.nan_to_num(special.nctdtr(df, noncentrality, bound)) for bound in (critical, -critical))
    return float(1 - below + wrong)
