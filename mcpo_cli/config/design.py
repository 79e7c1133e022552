"""Designs of suites: points spread over the space of several settings, at each of which every arm is trained."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcpo_cli.errors import ConfigError

DIGITS = 3
"""Significant digits of a value drawn from a range: enough to spread points, short enough to read."""


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

    def check(self, key: str) -> None:
        """Raise ConfigError if it has neither levels nor a range, or both, or a range that is none."""
        given = self.low is not None and self.high is not None
        if bool(self.levels) == given or (given and not self._ordered()):
            raise ConfigError(
                f"{key}: needs levels, or low below high (both above 0 with log)",
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
    """Settings, such as seeds, whose values the points take in turn; they are no factors of the result."""
    seed: int = 0
    """Decides which points are drawn."""
    scales: tuple[str, ...] = ()
    """The scales that its ranges are meant for; empty for all."""

    def check(self) -> None:
        """Raise ConfigError if a factor is not valid, or there is none."""
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
        import warnings

        from scipy.stats import qmc

        with warnings.catch_warnings():
            # A number of points that is no power of two is less even, which is the user's choice.
            warnings.simplefilter("ignore", UserWarning)
            share_PF = qmc.Sobol(len(self.factors), rng=self.seed).random(self.points)
        return [
            {
                **{key: one.at(float(share)) for (key, one), share in zip(self.factors.items(), share_F, strict=True)},
                **{key: values[i % len(values)] for key, values in self.blocks.items()},
            }
            for i, share_F in enumerate(share_PF)
        ]
