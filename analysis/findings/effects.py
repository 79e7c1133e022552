"""Effects over all studies from their committed rows, with base policies as units.

`experiments/findings/effects.yaml` declares them: which rows, which number of a run, which contrast of arms. The mean
is over pairs of base policy and seed; its interval and p take base policies as units (`statistics/clusters.py`: CR2),
so that they are about new base policies. Of a pretrained model, which has one base policy, a unit is a run.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mcpo_cli.config.reading import read_yaml
from mcpo_cli.convert import convert
from mcpo_cli.errors import ConfigError, nearest
from mcpo_cli.statistics import clusters
from mcpo_cli.statistics.difference_tests import OneSided, p_values
from mcpo_cli.statistics.stats import ROUNDING, holm

from .. import EXPERIMENTS

DECLARED = EXPERIMENTS / "findings" / "effects.yaml"
MOST_FLIPPED = 40
"""Most units whose signs are flipped in all ways."""
PAIR = ["file", "base_seed", "seed"]


@dataclass(frozen=True)
class Effect:
    """One contrast of arms in the rows of one or several studies."""

    id: str
    question: str
    """The page that it belongs to, or empty: of no forest plot."""
    label: str
    csv: tuple[str, ...]
    """Files in the folders `results` of studies."""
    columns: tuple[str, ...]
    """The number of a run, or several whose mean it is; of rows of saved states `lost`, `gained`, or `drift`."""
    weights: Mapping[str, float]
    """Weight of each arm in the contrast."""
    control: Mapping[str, float] = field(default_factory=dict)
    """Weight of each arm in the value that the effect is a share of; by default the arms of negative weight."""
    where: Mapping[str, Any] = field(default_factory=dict)
    """Values of columns that rows must have, or ranges: `{from: 0.1, below: 0.2}`."""
    states: Literal["", "mastered", "held_out"] = ""
    """The cohort, if rows are of saved states: a run's number is the mean over its states, of mastered prompts weighted
    by the number of these prompts."""
    ratio: bool = False
    """The contrast is of logarithms, so that its value is that of a ratio."""
    split: str = ""
    """A column whose value follows an arm's name, after a comma: arms at several learning rates."""
    registered: bool = False
    """True if the contrast was registered before its runs."""
    family: str = ""
    """Registered hypotheses of one name are corrected together, by Holm's method."""
    margin: float | None = None
    """The hypothesis: the contrast lies within ± margin (two one-sided tests); by default that it is not 0."""
    at_most: bool = False
    """The hypothesis is only that the contrast lies below the margin."""
    by_flips: bool = False
    """The registered test flips signs of units; by default it is Student's t."""
    hypothesis: str = ""
    """Effects of one name are one hypothesis, which holds if all of them do; by default each is one."""


@dataclass(frozen=True)
class Estimate:
    """The effect for new base policies (or runs of one pretrained model)."""

    value: float
    half_width: float
    p: float
    units: int
    below: int
    """Units whose mean is below 0."""
    pairs: int
    control: float
    pairs_half_width: float
    """Half of the interval over pairs, which holds for these base policies only."""

    flip_p: float
    """p of the sign-flip test over units (Fisher 1935), exact; NaN of more than MOST_FLIPPED units."""
    p_test: float
    """p of the effect's hypothesis by its registered test: the larger of two one-sided ones (Schuirmann 1987) within
    ± a margin."""

    @property
    def more(self) -> dict[str, float]:
        """What follows: how much it takes off the control's value, and the ratio that a contrast of logarithms is."""
        low, high = self.value - self.half_width, self.value + self.half_width
        return {
            "low": low, "high": high, "above": self.units - self.below,
            "taken_off": -self.value / self.control if self.control else math.nan,
            "taken_off_half_width": self.half_width / abs(self.control) if self.control else math.nan,
            "ratio": math.exp(self.value), "ratio_low": math.exp(low), "ratio_high": math.exp(high),
        }  # fmt: skip


def declared(path: Path = DECLARED) -> dict[str, Effect]:
    """All declared effects by id.

    Raises:
        ConfigError: the file has an unknown key or a wrong type, or an id twice.
    """
    effects = [convert(Effect, row, "") for row in read_yaml(path)["effects"]]
    by_id = {effect.id: effect for effect in effects}
    if len(by_id) < len(effects):
        raise ConfigError(f"{path}: an id is used twice", fix=f"edit {path.name}")
    return by_id


@cache
def rows(name: str) -> pd.DataFrame:
    """The rows per run of a file in some study's `results`; its name is the column `file`.

    Raises:
        ConfigError: not one study has the file.
    """
    files = [*EXPERIMENTS.glob(f"*/results/{name}")]
    if len(files) != 1:
        raise ConfigError(f"{len(files)} studies have results/{name}, not one", fix="ls experiments/*/results")
    frame = pd.read_csv(files[0], low_memory=False).assign(file=name)
    return frame[frame["block"] == "run"] if "block" in frame else frame


def values(effect: Effect) -> pd.DataFrame:
    """One row per pair (file, base_seed, seed): `difference` and `control`.

    Raises:
        ConfigError: a column or an arm does not exist.
    """
    frame = pd.concat([rows(name) for name in effect.csv], ignore_index=True)
    for name, value in effect.where.items():
        mask = (
            frame[name].between(value.get("from", -np.inf), value.get("below", np.inf), inclusive="left")
            if isinstance(value, Mapping)
            else frame[name].isin(value if isinstance(value, list | tuple) else [value])
        )
        frame = frame[mask]
    frame = _of_states(frame, effect) if effect.states else frame
    if effect.split:
        frame = frame.assign(arm=frame["arm"] + ", " + frame[effect.split].map("{:g}".format))
    if misses := [name for name in effect.columns if name not in frame]:
        raise ConfigError(f"{effect.id}: unknown column '{misses[0]}': {nearest(misses[0], map(str, frame))}")
    frame = frame.assign(number=frame[[*effect.columns]].mean(axis=1)).dropna(subset=["number"])
    key = [*PAIR, *(["point"] if "point" in frame and not effect.split else [])]
    if effect.ratio:
        frame = frame.assign(number=np.log(frame["number"]))
    table = frame.pivot(index=key, columns="arm", values="number")
    control = effect.control or {arm: -weight for arm, weight in effect.weights.items() if weight < 0}
    if gaps := [arm for arm in (*effect.weights, *control) if arm not in table]:
        raise ConfigError(f"{effect.id}: no arm '{gaps[0]}': {nearest(gaps[0], map(str, table))}")
    contrast, level = (
        sum((weight * table[arm] for arm, weight in of.items()), pd.Series(0.0, table.index))
        for of in (effect.weights, control)
    )
    return pd.DataFrame({"difference": contrast, "control": level}).dropna()


def _of_states(frame: pd.DataFrame, effect: Effect) -> pd.DataFrame:
    """Rows of saved states as one row per run and arm."""
    cohort = frame[frame["cohort"] == effect.states]
    (column,) = effect.columns
    number = cohort["drift" if column == "drift" else "change"] * (-1.0 if column == "lost" else 1.0)
    weight = cohort["prompts"] if effect.states == "mastered" else pd.Series(1.0, cohort.index)
    sums = pd.DataFrame({"sum": number * weight, "weight": weight}).groupby([cohort[k] for k in (*PAIR, "arm")]).sum()
    return (sums["sum"] / sums["weight"]).rename(column).reset_index()


def units(pairs: pd.DataFrame) -> pd.Series:
    """The unit of each pair: its base policy, which files of one set of base policies share."""
    return pairs.index.get_level_values("base_seed").to_series(index=pairs.index)


def estimate(effect: Effect) -> Estimate:
    """The effect from committed rows."""
    return of_pairs(values(effect), effect)


def adjusted(family: str, among: Mapping[str, Effect]) -> dict[str, float]:
    """By effect: the p of its hypothesis after Holm's correction over the hypotheses of the family."""
    members = {name: effect.hypothesis or name for name, effect in among.items() if effect.family == family}
    p_values: dict[str, float] = {}
    for name, hypothesis in members.items():
        p_values[hypothesis] = float(np.maximum(p_values.get(hypothesis, 0.0), estimate(among[name]).p_test))
    corrected = dict(zip(p_values, map(float, holm([*p_values.values()])), strict=True))
    return {name: corrected[hypothesis] for name, hypothesis in members.items()}


def of_pairs(pairs: pd.DataFrame, effect: Effect) -> Estimate:
    """The effect from a table of `values`."""
    unit = units(pairs)
    test = clusters.mean(pairs["difference"], np.ones(len(pairs)), unit)
    pair_test = clusters.mean(pairs["difference"], np.ones(len(pairs)), np.arange(len(pairs)))
    by_unit = pairs["difference"].groupby(unit).mean()
    flips = SignFlips(by_unit.to_numpy())
    return Estimate(
        value=test.mean,
        half_width=test.interval().half_width,
        p=p_values(test).p,
        units=test.n,
        below=int((by_unit < 0).sum()),
        pairs=len(pairs),
        control=float(pairs["control"].mean()),
        pairs_half_width=pair_test.interval().half_width,
        flip_p=p_values(flips).p,
        p_test=_of_hypothesis(effect, flips if effect.by_flips else test),
    )


@dataclass(frozen=True)
class SignFlips:
    """The exact sign-flip test of the mean over units; NaN of more than MOST_FLIPPED units."""

    value_U: NDArray[np.float64]

    def p_above(self, bound: float = 0.0) -> float:
        """p of a mean of `bound` or less, one-sided."""
        return self._at_least(self.value_U - bound)

    def p_below(self, bound: float = 0.0) -> float:
        """p of a mean of `bound` or more, one-sided."""
        return self._at_least(bound - self.value_U)

    @staticmethod
    def _at_least(value_U: NDArray[np.float64]) -> float:
        """The share of all choices of signs whose sum is at least the one seen: the sums of one half of the units,
        added to those of the other half."""
        if len(value_U) > MOST_FLIPPED:
            return math.nan
        first, second = (_sums(half) for half in np.array_split(value_U, 2))
        lowest = np.searchsorted(np.sort(second), value_U.sum() - ROUNDING - first)
        return float(np.mean(1 - lowest / len(second)))


def _sums(value_U: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of the values for each choice of signs."""
    sums = np.zeros(1)
    for value in value_U:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def _of_hypothesis(effect: Effect, test: OneSided) -> float:
    if effect.margin is None:
        return p_values(test).p
    return test.p_below(effect.margin) if effect.at_most else p_values(test, effect.margin).p_equivalent
