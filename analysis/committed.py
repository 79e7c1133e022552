"""Statistics of committed rows (`experiments/results/*.csv`, `experiments/paper.yaml`), each asked for by one query."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from mcpo_cli.analysis import pooled, published
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.errors import ConfigError, nearest
from mcpo_cli.statistics import clusters

PROMPTS = 128
"""Prompts of a global step in the suites with a design."""
HALF_WIDTH = "half_width"
"""Names, beside the columns, half of the distance between the bounds of an interval."""
RANGE = frozenset({"from", "below"})
BOUNDS = (("low", "high"), ("t_low", "t_high"))


@dataclass(frozen=True)
class Query:
    """One statistic of committed rows."""

    of: tuple[str, ...] = ()
    """Columns, or the names of the parts of the statistic: a query gives one number for each."""
    csv: tuple[str, ...] = ()
    """Files in `experiments/results`, whose rows are taken together."""
    statistic: Literal["value", "mean", "difference", "effect", "points", "below_base", "audit"] = "value"
    where: Mapping[str, Any] = field(default_factory=dict)
    """Value of each column, or its range: `{from: 0.1, below: 0.2}`. Of `effect` and `points` it selects points, which
    also have `control`, the baseline's pass@1, and `drift`, the learning rate times the mini-batches but the first."""
    arm: str = ""
    baseline: str = ""


class Committed:
    """The committed rows of a checkout, whose folder `experiments` is given; each file is read once."""

    def __init__(self, experiments: Path) -> None:
        self._experiments = experiments
        self._frames: dict[str, pd.DataFrame] = {}

    def numbers(self, query: Query) -> list[float]:
        """The numbers that `query` asks for.

        Raises:
            ConfigError: a file, column, arm or part does not exist, or the number of matching rows is wrong.
        """
        return STATISTICS[query.statistic](self, query)

    def rows(self, query: Query, **more: Any) -> pd.DataFrame:
        """The rows of the query's files that match its `where` and `more`."""
        return _select(pd.concat([self._frame(name) for name in query.csv]), {**query.where, **more})

    def points(self, query: Query, metric: str) -> pd.DataFrame:
        """The points of a design that match `where`: settings, control, drift, and the arm's difference in `metric`.

        Without a baseline the difference is the arm's own value.
        """
        runs = pd.concat([self._frame(name) for name in query.csv])
        points = _runs(runs, query.arm)
        control = _runs(runs, query.baseline or query.arm)
        value = _column(points, metric)
        added = {
            "control": control["pass@1"],
            "drift": points["train.lr"] * (np.ceil(PROMPTS / points["train.mini_batch"]) - 1),
            "difference": value - control[metric] if query.baseline else value,
        }
        return _select(points.assign(**added), query.where)

    @cached_property
    def audit(self) -> Mapping[str, float]:
        """Results of the audit of the published table, by name."""
        return _audit(read_yaml(self._experiments / "paper.yaml"))

    def _frame(self, name: str) -> pd.DataFrame:
        path = self._experiments / "results" / name
        if not path.is_file():
            raise ConfigError(f"{path} does not exist", fix=f"ls {path.parent}")
        if name not in self._frames:
            self._frames[name] = pd.read_csv(path).assign(file=name)
        return self._frames[name]


def _select(frame: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    for name, wanted in where.items():
        values = _column(frame, name)
        if isinstance(wanted, Mapping):
            if unknown := wanted.keys() - RANGE:
                raise ConfigError(f"where.{name}: unknown key '{min(unknown)}': {nearest(min(unknown), RANGE)}")
            inside = (values >= wanted.get("from", -math.inf)) & (values < wanted.get("below", math.inf))
        else:
            inside = values == wanted
        frame = frame[inside]
    return frame


def _runs(runs: pd.DataFrame, arm: str) -> pd.DataFrame:
    """The run of an arm at each point of a design."""
    rows = runs[runs["arm"] == arm]
    if rows.empty or rows["point"].duplicated().any():
        raise ConfigError(f"there is not one run of '{arm}' at each point: {nearest(arm, runs['arm'].unique())}")
    return rows.set_index("point")


def _column(frame: pd.DataFrame, name: str) -> pd.Series:
    if name not in frame:
        raise ConfigError(f"unknown column '{name}': {nearest(name, map(str, frame))}")
    return frame[name]


def _value(committed: Committed, query: Query) -> list[float]:
    rows = committed.rows(query)
    if len(rows) != 1:
        raise ConfigError(f"{', '.join(query.csv)}: {len(rows)} rows match {dict(query.where)}, not one")
    return [_cell(rows, name) for name in query.of]


def _cell(rows: pd.DataFrame, name: str) -> float:
    if name == HALF_WIDTH:
        low, high = next(pair for pair in BOUNDS if pair[0] in rows)
        return (_cell(rows, high) - _cell(rows, low)) / 2
    return float(_column(rows, name).iloc[0])


def _mean(committed: Committed, query: Query) -> list[float]:
    rows = committed.rows(query)
    return [float(_column(rows, name).mean()) for name in query.of]


def _difference(committed: Committed, query: Query) -> list[float]:
    """An arm's value minus the baseline's. It has no interval, because these rows are means over runs."""
    rows = [committed.rows(query, arm=arm) for arm in (query.arm, query.baseline)]
    if [len(some) for some in rows] != [1, 1]:
        raise ConfigError(f"{', '.join(query.csv)}: not one row of each arm matches {dict(query.where)}")
    return [_cell(rows[0], name) - _cell(rows[1], name) for name in query.of]


def _effect(committed: Committed, query: Query) -> list[float]:
    """Mean difference over points and its 95 % half-width, with base policy x seed as clusters.

    Runs of one base policy and seed share the policy that they start from and the prompts that they are trained on.
    """
    if len(query.of) != 1:
        raise ConfigError(f"effect: of must be one column, not {', '.join(query.of) or 'none'}")
    points = committed.points(query, query.of[0])
    if points.empty:
        raise ConfigError(f"{', '.join(query.csv)}: no point matches {dict(query.where)}")
    cluster = points["base_seed"].astype(str) + "-" + points["seed"].astype(str)
    interval = clusters.mean(points["difference"], np.ones(len(points)), cluster).interval()
    return [interval.mean, interval.half_width]


def _points(committed: Committed, query: Query) -> list[float]:
    return [float(len(committed.points(query, "pass@1")))]


def _below_base(committed: Committed, query: Query) -> list[float]:
    """Number of arms whose average pass@1 after the last step is below that of their base policies; number of arms."""
    about = {"tier": "average", "metric": "pass@1", "at": "steps"}
    keys = ["file", "model", "arm"]
    base = committed.rows(query, block="curve", cost=0, **about).set_index(keys)["mean"]
    end = committed.rows(query, block="measured", **about).set_index(keys)["mean"]
    return [float((end < base.reindex(end.index)).sum()), float(len(end))]


def _published(committed: Committed, query: Query) -> list[float]:
    if unknown := [name for name in query.of if name not in committed.audit]:
        raise ConfigError(f"unknown part '{unknown[0]}': {nearest(unknown[0], committed.audit)}")
    return [committed.audit[name] for name in query.of]


def _audit(paper: Mapping[str, Any]) -> Mapping[str, float]:
    audits = [published.audit(cell) for cell in published.cells(paper)]
    together, differences = pooled.pool(audits), published.differences(audits)
    samples, *problems = together.noises
    return {
        "pooled difference": together.difference,
        "cells": together.cells,
        "positive cells": together.positive,
        "z, other samples, low": samples.z[0],
        "z, other samples, high": samples.z[1],
        "z, other problems, low": min(noise.z[0] for noise in problems),
        "z, other problems, high": max(noise.z[1] for noise in problems),
        "differences": len(differences),
        "differences within noise": sum(one.verdict != "beyond both" for one in differences),
        "pass@8": len(audits),
        "pass@8 that are shares of problems": sum(one.any_of_8 for one in audits),
    }


STATISTICS: Mapping[str, Callable[[Committed, Query], list[float]]] = {
    "value": _value,
    "mean": _mean,
    "difference": _difference,
    "effect": _effect,
    "points": _points,
    "below_base": _below_base,
    "audit": _published,
}
