"""Designs of suites: points spread over the space of several settings, at each of which every arm is trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mcpo_cli.errors import ConfigError

DIGITS = 3
"""Significant digits of a value drawn from a range: enough to spread points, short enough to read."""
ROUND, CANDIDATES, BLOCK_WEIGHT = 4, 8, 3.0
"""Of `balanced`: strata that are assigned together, random orders that are tried for them, and the weight of an earlier
block beside a factor. With these, eta^2 of a factor by a block stays below .2 in designs of 12 to 20 strata."""


@dataclass(frozen=True)
class Factor:
    """A setting that a design varies: over `levels`, or from `low` to `high`."""

    levels: tuple[Any, ...] = ()
    """Its values, in an order in which neighbours are alike."""
    low: float | None = None
    """The lower end of its range."""
    high: float | None = None
    """The upper end of its range."""
    log: bool = False
    """Whether equal ratios, not equal differences, are equally far apart."""

    def at(self, share: float) -> Any:
        """The value at `share`, in 0..1, of the way from the first to the last."""
        if self.levels:
            return self.levels[min(int(share * len(self.levels)), len(self.levels) - 1)]
        low, high = self._range()
        value = low * (high / low) ** share if self.log else low + share * (high - low)
        return float(f"{value:.{DIGITS}g}")

    def place(self, value: Any) -> float:
        """Where `value` lies on the way, in 0..1: the inverse of `at`, with levels at equal distances."""
        import math

        if self.levels:
            return self.levels.index(value) / max(1, len(self.levels) - 1)
        low, high = self._range()
        return math.log(value / low) / math.log(high / low) if self.log else (value - low) / (high - low)

    def spread(self) -> float:
        """Root mean square distance of its places from the middle, 1/2, over its levels or its whole range."""
        import math

        if not self.levels:
            return 1 / math.sqrt(12)
        return math.sqrt(sum((self.place(level) - 0.5) ** 2 for level in self.levels) / len(self.levels))

    def check(self, key: str) -> None:
        """Raise ConfigError if it has neither levels nor a range, or both, or an invalid range."""
        given = self.low is not None and self.high is not None
        if bool(self.levels) == given or (given and not self._ordered()):
            raise ConfigError(
                f"{key}: needs `levels`, or `low` below `high` (both above 0 if `log` is true)",
                fix=f"{key}: {{low: 1.0e-4, high: 1.0e-3, log: true}}  or  {key}: {{levels: [8, 16]}}",
            )

    def _ordered(self) -> bool:
        low, high = self._range()
        return low < high and (low > 0 or not self.log)

    def _range(self) -> tuple[float, float]:
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high


@dataclass(frozen=True)
class Design:
    """Points of a space of settings; each arm is trained once at each point."""

    points: int = field(metadata={"gt": 0, "le": 4096})
    """The number of points. The first 2^n of them are spread evenly, so a part of a design is a design."""
    factors: Mapping[str, Factor]
    """The settings that are varied together, by key. A `method.*` goes to the arms whose method has that option."""
    blocks: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Settings, such as seeds, that are not studied; their values are spread over the points."""
    assignment: Literal["balanced", "cyclic"] = "balanced"
    """How points get the values of blocks. `balanced`: each run of as many consecutive points as a block has values
    takes every value once, in an order that evens out factors and earlier blocks. `cyclic`: point i takes value
    i modulo their number, which confounds blocks with factors; it is only for designs whose runs already exist."""
    seed: int = 0
    """Decides which points are drawn."""
    scales: tuple[str, ...] = ()
    """The scales that its ranges are meant for; empty for all."""

    def check(self) -> None:
        """Raise ConfigError if a factor is not valid, or there is no factor."""
        if not self.factors:
            raise ConfigError("design.factors: at least one is needed", fix="train.lr: {levels: [5.0e-4, 1.0e-3]}")
        for key, factor in self.factors.items():
            factor.check(f"design.factors.{key}")

    def check_scale(self, suite: str, scale: str) -> None:
        """Raise ConfigError if the design of `suite` is not meant for `scale`."""
        if self.scales and scale not in self.scales:
            meant = ", ".join(self.scales)
            raise ConfigError(
                f"the ranges of the design of {suite} are meant for scale {meant}, not {scale}",
                fix=f"scale={self.scales[0]}",
            )

    def settings(self) -> list[dict[str, Any]]:
        """The values of factors and blocks at each point: a scrambled Sobol sequence (Owen 1998, in SciPy)."""
        # Beyond the last point to the end of its round: so a longer design begins with the same values of blocks.
        share_PF = self._shares(self.points + sum(ROUND * size - 1 for size in self._sizes().values()))
        points = [
            {key: one.at(float(share)) for (key, one), share in zip(self.factors.items(), share_F, strict=True)}
            for share_F in share_PF
        ]
        taken = self._assign(points)
        return [
            point | {key: values[taken[key][i]] for key, values in self.blocks.items()}
            for i, point in enumerate(points[: self.points])
        ]

    def places(self, points: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
        """Where the factors of points lie, in 0..1: points x factors."""
        return np.array([[one.place(point[key]) for key, one in self.factors.items()] for point in points])

    def _shares(self, points: int) -> NDArray[np.float64]:
        """Places of the first points, in 0..1, points x factors."""
        import warnings

        from scipy.stats import qmc

        with warnings.catch_warnings():
            # A number of points that is not a power of two is less even, which is the user's choice.
            warnings.simplefilter("ignore", UserWarning)
            return np.asarray(qmc.Sobol(len(self.factors), rng=self.seed).random(points), dtype=np.float64)

    def _sizes(self) -> dict[str, int]:
        return {key: len(values) for key, values in self.blocks.items()}

    def _assign(self, points: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
        """By block, the number of the value that each point takes."""
        if self.assignment == "cyclic":
            return {key: [i % size for i in range(self.points)] for key, size in self._sizes().items()}
        spread_F = np.array([one.spread() for one in self.factors.values()])
        centred_PF = (self.places(points) - 0.5) / spread_F
        # Half the weight for distance from the middle: else a value could take nothing but the middle of a range.
        return balanced(np.hstack([centred_PF, 0.5 * (centred_PF**2 - 1)]), self._sizes(), self.seed)


def balanced(centred_PK: NDArray[np.float64], sizes: Mapping[str, int], seed: int) -> dict[str, list[int]]:
    """Which value of each block each point takes, so that no block goes along with a factor or with an earlier block.

    A Sobol sequence is regular: its points i, i + 8, i + 16, ... share a part of every range, so a block that takes its
    values in turn is confounded with the factors. Here each stratum of as many consecutive points as a block has values
    takes every value once, so that the totals of the factors' places within each value, and of the earlier blocks'
    values, stay as equal as they can (least squares). ROUND strata are assigned together: of CANDIDATES random orders,
    each improved stratum by stratum, the one with the most equal totals is kept. A stratum alone has too few orders
    (two, if the block has two values) to make up for the strata before it.

    Args:
        centred_PK: places of the points, points x factors, with mean 0 and mean square 1 over a factor's range. Points
            beyond the last whole round get no value.
        sizes: number of values of each block.
        seed: decides the random orders.

    Returns:
        By block, the number of the value of each point.
    """
    chosen: dict[str, list[int]] = {}
    for block, (key, size) in enumerate(sizes.items()):
        rng = np.random.default_rng([seed, block])
        total_VK = np.zeros((size, centred_PK.shape[1]))
        values: list[int] = []
        for start in range(0, len(centred_PK) - ROUND * size + 1, ROUND * size):
            here_RSK = centred_PK[start : start + ROUND * size].reshape(ROUND, size, -1)
            tried = [_improved(here_RSK, total_VK, rng) for _ in range(CANDIDATES)]
            value_RS, total_VK = min(tried, key=lambda one: float((one[1] ** 2).sum()))
            values += value_RS.ravel().tolist()
        chosen[key] = values
        taken_PV = BLOCK_WEIGHT * (np.eye(size)[values] - 1 / size)
        centred_PK = np.hstack([centred_PK[: len(values)], taken_PV])
    return chosen


def _improved(
    here_RSK: NDArray[np.float64], total_VK: NDArray[np.float64], rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """A random order of each stratum of a round, improved until no stratum alone can be; and the totals with it.

    The best order of a stratum, given all others, is an assignment problem, which SciPy solves exactly.
    """
    from scipy.optimize import linear_sum_assignment

    rounds, size, _ = here_RSK.shape
    value_RS = rng.permuted(np.tile(np.arange(size), (rounds, 1)), axis=1)
    total_VK = total_VK.copy()
    for value_S, here_SK in zip(value_RS, here_RSK, strict=True):
        total_VK[value_S] += here_SK
    is_better = True
    while is_better:
        is_better = False
        for value_S, here_SK in zip(value_RS, here_RSK, strict=True):
            total_VK[value_S] -= here_SK
            # |total + here|^2 is, but for what no assignment changes, twice their product.
            cost_SV = here_SK @ total_VK.T
            best_S = linear_sum_assignment(cost_SV)[1]
            points = np.arange(size)
            # Less by more than rounding, or the loop may not end.
            if cost_SV[points, best_S].sum() < cost_SV[points, value_S].sum() - 1e-9:
                value_S[:] = best_S
                is_better = True
            total_VK[value_S] += here_SK
    return value_RS, total_VK
