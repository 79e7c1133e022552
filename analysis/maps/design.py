"""Points spread over a space of settings, at each of which every arm of a map is trained."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import qmc

from mcpo_cli.config import load
from mcpo_cli.config.reading import key_of, read_yaml
from mcpo_cli.convert import convert
from mcpo_cli.errors import ConfigError

DIGITS = 3
"""Significant digits of a value drawn from a range: enough to spread points, short enough to read."""

UNIFORM = 12**-0.5
"""Standard deviation of a position that is drawn uniformly from 0..1."""


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

    def position(self, value: Any) -> float:
        """The position of `value` on the way, in 0..1: the inverse of `at`, with levels at equal distances."""
        if self.levels:
            return self.levels.index(value) / max(1, len(self.levels) - 1)
        low, high = self._range()
        return math.log(value / low) / math.log(high / low) if self.log else (value - low) / (high - low)

    @property
    def spread(self) -> float:
        """The standard deviation of its positions over uniformly drawn points."""
        return float(np.std([self.position(level) for level in self.levels])) if self.levels else UNIFORM

    def check(self, key: str) -> None:
        """Raise ConfigError if it has neither levels nor a range, or both, or an invalid range."""
        has_range = self.low is not None and self.high is not None
        if bool(self.levels) == has_range or (has_range and not self._ordered()):
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
    takes every value once, in the order that best evens out factors and earlier blocks. `cyclic`: point i takes value
    i modulo their number, which confounds blocks with factors; it is only for designs whose runs already exist."""
    seed: int = 0
    """Decides which points are drawn."""

    def check(self) -> None:
        """Raise ConfigError if a factor is not valid, or there is no factor."""
        if not self.factors:
            raise ConfigError("design.factors: at least one is needed", fix="train.lr: {levels: [5.0e-4, 1.0e-3]}")
        for key, factor in self.factors.items():
            factor.check(f"design.factors.{key}")

    def settings(self) -> list[dict[str, Any]]:
        """The values of factors and blocks at each point: a scrambled Sobol sequence (Owen 1998, in SciPy)."""
        # Drawn to the end of the last point's strata, so that a longer design begins with the same values of blocks.
        share_PF = self._shares(self.points + sum(size - 1 for size in self._sizes().values()))
        points = [
            {key: factor.at(float(share)) for (key, factor), share in zip(self.factors.items(), share_F, strict=True)}
            for share_F in share_PF
        ]
        choices = self._assign(points)
        return [
            point | {key: values[choices[key][i]] for key, values in self.blocks.items()}
            for i, point in enumerate(points[: self.points])
        ]

    def positions(self, points: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
        """Positions of the factors of points, in 0..1: points x factors."""
        return np.array([[factor.position(point[key]) for key, factor in self.factors.items()] for point in points])

    def _shares(self, points: int) -> NDArray[np.float64]:
        """Positions of the first points, in 0..1, points x factors."""
        with warnings.catch_warnings():
            # Points whose number is not a power of two are spread less evenly, which is the user's choice.
            warnings.simplefilter("ignore", UserWarning)
            return np.asarray(qmc.Sobol(len(self.factors), rng=self.seed).random(points), dtype=np.float64)

    def _sizes(self) -> dict[str, int]:
        return {key: len(values) for key, values in self.blocks.items()}

    def _assign(self, points: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
        """By block, the number of the value that each point takes."""
        if self.assignment == "cyclic":
            return {key: [i % size for i in range(self.points)] for key, size in self._sizes().items()}
        # In units of its spread: otherwise a factor of two levels, the widest, is balanced at the cost of the others.
        spread_F = np.array([factor.spread or UNIFORM for factor in self.factors.values()])
        return balanced((self.positions(points) - 0.5) / spread_F * UNIFORM, self._sizes(), self.seed)


@dataclass(frozen=True)
class Space:
    """The content of a map's file: arms, and the design of the points at which each of them is trained."""

    arms: Mapping[str, tuple[str, ...]]
    """The overrides of each arm, by the arm's name."""
    baseline: str
    """The arm that the others are compared with."""
    design: Design
    """The points, and the values of all settings there."""
    title: str = ""
    """The comparison in a few words."""
    question: str = ""
    """The question that the map answers."""
    sweep: Mapping[str, tuple[Any]] = field(default_factory=dict)
    """Settings of all runs, with their one value."""

    def runs(self, points: int = 0) -> Iterator[tuple[int, str, list[str]]]:
        """Point, arm and overrides of each run, point by point. points: only as many; 0 for all.

        A setting of a point goes to the arms whose runs have it and do not set it themselves: an option such as
        `method.delta` to those whose method has that option.
        """
        shared = [f"{key}={value}" for key, (value,) in self.sweep.items()]
        facts = {arm: load.load([*words, *shared])[0].flat_identity(later_too=True) for arm, words in self.arms.items()}
        for point, values in enumerate(self.design.settings()[: points or None]):
            for arm, words in self.arms.items():
                free = facts[arm].keys() - {key_of(text) for text in words}
                settings = [f"{key}={value}" for key, value in values.items() if key in free]
                yield point, arm, [*words, *settings, *shared]

    def suite(self, points: int = 0) -> dict[str, Any]:
        """The content of a suite of mcpo that trains these runs: an arm for each arm and point."""
        arms = {f"{arm} at point {point}": overrides for point, arm, overrides in self.runs(points)}
        return {"title": self.title, "question": self.question, "arms": arms}


def read(path: Path) -> Space:
    """The map in the file `path`.

    Raises:
        ConfigError: a key or value is wrong.
    """
    try:
        space = convert(Space, read_yaml(path), "")
        space.design.check()
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", fix=error.fix, code=error.code) from error
    return space


def balanced(centred_PF: NDArray[np.float64], sizes: Mapping[str, int], seed: int) -> dict[str, list[int]]:
    """Assign a value of each block to each point, so that no block is confounded with a factor or an earlier block.

    A Sobol sequence is regular: its points i, i + 8, i + 16, ... share a part of every range, so a block that takes its
    values in turn is confounded with the factors. Here each stratum of as many consecutive points as a block has values
    takes every value once. An assignment problem decides which point takes which: it keeps the totals of the factors'
    positions within each value, and of the earlier blocks' values, as equal as possible (least squares, solved exactly
    by SciPy). The first stratum's order is random; all others follow from it.

    Args:
        centred_PF: positions of the points around 0 and equally spread, points x factors. Points beyond the last whole
            stratum get no value.
        sizes: number of values of each block.
        seed: decides the order in the first stratum.

    Returns:
        By block, the number of the value of each point.
    """
    centred_PK = centred_PF
    values: dict[str, list[int]] = {}
    for block, (key, size) in enumerate(sizes.items()):
        total_VK = np.zeros((size, centred_PK.shape[1]))
        order = np.random.default_rng([seed, block]).permutation(size)
        value_P: list[int] = []
        for start in range(0, len(centred_PK) - size + 1, size):
            here_SK = centred_PK[start : start + size]
            # |total + here|^2 is twice their product, plus terms that no assignment changes.
            value_S = linear_sum_assignment(here_SK @ total_VK.T)[1] if start else order
            total_VK[value_S] += here_SK
            value_P += value_S.tolist()
        values[key] = value_P
        taken_PV = np.eye(size)[value_P] - 1 / size
        centred_PK = np.hstack([centred_PK[: len(value_P)], taken_PV])
    return values
