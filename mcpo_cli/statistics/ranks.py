"""Spearman's rank correlation of a number with a quantity, over the points of a design."""

import itertools
import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from mcpo_cli.statistics import clusters
from mcpo_cli.statistics.stats import LEAST, ROUNDING, Floats, Interval, Student

EXACT = 10
"""From this many values on, Student's t replaces the list of all orders: 9 values have 362 880 of them."""
ORDERS = 9999
"""Number of random orders within clusters that a correlation is compared with."""


@dataclass(frozen=True)
class Correlation(Interval):
    """A rank correlation. Its interval is symmetric in Fisher's z = atanh(rho), so that it lies within -1..1.

    `half_width` is that of z; it is NaN, and there is no interval, below EXACT values.
    """

    p_above: float
    """One-sided p of a correlation as high if the true one is 0."""
    p_below: float
    """One-sided p of one as low."""
    p_within: float = math.nan
    """Two-sided p among random orders within clusters: differences between clusters, such as seeds that each have a
    part of the range, count neither for nor against a correlation. NaN without clusters of several values."""

    @property
    def low(self) -> float:
        """Lower bound."""
        bound = math.tanh(self._z - self.half_width)
        return self.mean if bound > self.mean else bound

    @property
    def high(self) -> float:
        """Upper bound."""
        bound = math.tanh(self._z + self.half_width)
        return self.mean if bound < self.mean else bound

    @property
    def _z(self) -> float:
        # A correlation of 1 has no z: the value halfway to the next lower one that n different values can have does.
        most = 1 - 6 / (self.n**3 - self.n)
        return math.atanh(max(-most, min(most, self.mean)))


def correlation(x_N: ArrayLike, y_N: ArrayLike, cluster_N: ArrayLike | None = None) -> Correlation:
    """The rank correlation of x and y; ties have their mean rank.

    Without clusters, p is exact below EXACT values: the share of all orders of y whose correlation is as high. Three
    values have six orders, so they are never significant. From EXACT values on it is Student's t with N - 2 degrees of
    freedom, and the interval has the error sqrt((1 + rho^2 / 2) / (N - 3)) in z (Bonett and Wright 2000, Psychometrika
    65, 23-28). Simulated type I at level .05, two-sided: 0 for 3 and 4 values, .02 to .055 from 5 to 16.

    With clusters, values of one cluster may depend on each other. Below EXACT values, only orders within clusters are
    counted. From EXACT values on, error and degrees of freedom are those of the slope of the ranks (`clusters.slope`,
    CR2). Simulated type I of 64 points in 24 clusters: .05 where clusters have different effects, also where each
    has a small part of the range of x; .08 where the spread of y grows with x as well.

    Raises:
        ValueError: there are fewer than LEAST values, their numbers differ, one is NaN, or all of x or of y are equal.
    """
    # Imported here because it takes most of a second, and the other functions do without.
    from scipy.stats import rankdata

    x, y = np.asarray(x_N, dtype=np.float64), np.asarray(y_N, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or x.size < LEAST:
        raise ValueError(f"a rank correlation needs two lists of one length, at least {LEAST}")
    if np.isnan(x).any() or np.isnan(y).any():
        raise ValueError("a rank correlation needs numbers, and one is NaN")
    rank_2N = np.array([rankdata(values) - (len(values) + 1) / 2 for values in (x, y)])
    length_2 = np.sqrt((rank_2N**2).sum(axis=1))
    if not length_2.all():
        raise ValueError("a rank correlation needs different values, and all are equal")
    unit_x, unit_y = rank_2N / length_2[:, None]
    rho = float(np.clip(unit_x @ unit_y, -1, 1))
    place_N = np.zeros(x.size, int) if cluster_N is None else np.unique(np.asarray(cluster_N), return_inverse=True)[1]
    clustered = 0 < place_N.max() < x.size - 1
    if x.size < EXACT:
        return _exact(rho, unit_x, unit_y, place_N if clustered else np.zeros(x.size, int))
    if clustered:
        return _clustered(rho, unit_x, unit_y, place_N)
    test = Student(rho, math.sqrt(max(1 - rho**2, ROUNDING) / (x.size - 2)), x.size - 2, x.size)
    z = Student(0.0, math.sqrt((1 + rho**2 / 2) / (x.size - 3)), math.inf, x.size)
    return Correlation(rho, z.interval().half_width, x.size, test.p_above(), test.p_below())


def _exact(rho: float, unit_x: Floats, unit_y: Floats, place_N: np.ndarray) -> Correlation:
    order = np.argsort(place_N, kind="stable")
    rho_O = unit_y[order][_orders(tuple(np.bincount(place_N).tolist()))] @ unit_x[order]
    above, below = ((sign * rho_O >= sign * rho - ROUNDING).mean() for sign in (1, -1))
    return Correlation(rho, math.nan, len(order), float(above), float(below))


@cache
def _orders(sizes: tuple[int, ...]) -> np.ndarray:
    """All orders of values within their clusters, which follow one another: orders x values."""
    starts = itertools.accumulate(sizes, initial=0)
    within = [itertools.permutations(range(start, start + size)) for start, size in zip(starts, sizes, strict=False)]
    return np.array([list(itertools.chain(*parts)) for parts in itertools.product(*within)], dtype=np.int8)


def _clustered(rho: float, unit_x: Floats, unit_y: Floats, place_N: np.ndarray) -> Correlation:
    found = clusters.slope(unit_x, unit_y, place_N)
    # Ranks on one line have an error of 0; the smallest error instead keeps p defined, and the correlation certain.
    found = replace(found, error=max(found.error, 2 * ROUNDING))
    # The error of z, by the derivative of atanh.
    z = Student(0.0, found.error / max(1 - rho**2, ROUNDING), found.df, found.n)
    within = _within(unit_x, unit_y, place_N)
    return Correlation(rho, z.interval().half_width, found.n, found.p_above(), found.p_below(), within)


def _within(unit_x: Floats, unit_y: Floats, place_N: np.ndarray) -> float:
    """Two-sided p of x and y about their clusters' means, by random orders of y within clusters."""
    order = np.argsort(place_N, kind="stable")
    sorted_N, size_C = place_N[order], np.bincount(place_N)
    x_N, y_N = (
        unit_N[order] - (np.bincount(place_N, weights=unit_N) / size_C)[sorted_N] for unit_N in (unit_x, unit_y)
    )
    shuffled_ON = np.argsort(np.random.default_rng(0).random((ORDERS, len(x_N))) + sorted_N, axis=1)
    seen, found_O = abs(float(x_N @ y_N)), np.abs(y_N[shuffled_ON] @ x_N)
    return float((1 + (found_O >= seen - ROUNDING).sum()) / (ORDERS + 1))
