"""The curves of a comparison: pass@k against k, or learning curves of runs."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from mcpo_cli.compare.comparison import Comparison, records
from mcpo_cli.compare.equal_cost import AVERAGE, UNITS
from mcpo_cli.compare.page import MOST_BENCHMARKS
from mcpo_cli.compare.training import Training
from mcpo_cli.render.figures import base
from mcpo_cli.statistics.stats import Floats

PALETTE = (
    base.OTHERS[1], base.DAPO, base.MCPO, base.REWEIGHT, base.HINGE, base.UNFILTERED, base.OTHERS[0], base.OTHERS[2],
    base.OTHERS[3],
)  # fmt: skip
APART = 0.05
"""Distance between two sides' points along log2 k, so that their intervals do not hide each other."""
PROFILE = "profile"
"""Used as an axis, for the performance profiles."""


def _errors(value: Any, low: Any, high: Any) -> Floats:
    """The distances of both ends of intervals. An end may be beyond the value by rounding, where all scores are 1."""
    return np.asarray(np.maximum(np.array([value, high]) - np.array([low, value]), 0.0))


def curves(comparison: Comparison) -> Figure:
    """pass@k against k with 95 % intervals, one panel per benchmark; of runs, learning curves and profiles."""
    if comparison.training:
        return _learning(comparison, comparison.training)
    rows = comparison.curves
    data = rows[rows["benchmark"].isin(rows["benchmark"].unique()[:MOST_BENCHMARKS])].assign(model="")
    looks = _looks(list(rows["arm"].unique()))
    return base.grid(data, "benchmark", lambda axes, part: _curves(axes, part, looks), sharey=False)


def _curves(axes: Axes, data: pd.DataFrame, looks: dict[str, base.Look]) -> None:
    for index, (arm, look) in enumerate(looks.items()):
        rows = data[data["arm"] == arm]
        shift = 2 ** (APART * (index - (len(looks) - 1) / 2))
        axes.errorbar(
            rows["k"] * shift, rows["mean"], yerr=_errors(rows["mean"], rows["low"], rows["high"]),
            color=look.color, linestyle=look.linestyle, marker=look.marker, markersize=3, elinewidth=0.8, capsize=2,
            label=_short(arm),
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    k = sorted(data["k"].unique())
    axes.xaxis.set_major_locator(FixedLocator(k[:: (len(k) + 4) // 5]))  # at most five ticks
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda k, _: f"{k:g}")
    axes.set(xlabel="k (samples of a problem)", ylabel="pass@k (share)")


def _looks(names: Sequence[str]) -> dict[str, base.Look]:
    """The look of each side, the baseline's in black."""
    return {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(names)}


def _short(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:18]}...{name[-19:]}"


def _learning(compared: Comparison, training: Training) -> Figure:
    """A row of panels for each axis and one for the profiles; columns for each model and at most four arms."""
    columns = list(product(compared.models, base.batches(compared.names)))
    with base.drawing(compared.names):
        width = base.COLUMN if len(columns) == 1 else base.PAGE
        figure, panels = base.canvas(len(compared.axes) + 1, len(columns), width=width, height=1.7, sharey="row")
        cells = product([*compared.axes, PROFILE], columns)
        for index, (panel, (at, (model, arms))) in enumerate(zip(panels, cells, strict=True)):
            if at == PROFILE:
                _profile(panel, _of(training.final, model, arms), compared.metric)
            else:
                _along(panel, compared.metric, training, at, model, arms)
            if index % len(columns):
                panel.set_ylabel("")
                panel.tick_params(labelleft=False)
        for panel, (model, _) in zip(panels, columns, strict=False):
            panel.set_title(model)
        base.legend(figure)
    return figure


def _of(rows: pd.DataFrame, model: str, arms: Sequence[str]) -> pd.DataFrame:
    return rows[(rows["model"] == model) & rows["arm"].isin(arms)]


def _along(axes: Axes, metric: str, training: Training, at: str, model: str, arms: Sequence[str]) -> None:
    rows = _of(training.paths, model, arms)
    base.curves(axes, rows[rows["at"] == at], "value", "x", points=True)
    for score in records(training.before, model=model, benchmark=AVERAGE, metric=metric):
        base.reference(axes, score["mean"], score["arm"])
    base.integer_ticks(axes)
    axes.set(xlabel=UNITS[at], ylabel=f"held-out {metric} (share)")


def _profile(axes: Axes, rows: pd.DataFrame, metric: str) -> None:
    """The share of an arm's runs and tiers that score more than each level (Agarwal et al. 2021, Figure 3)."""
    for arm, look in base.looks(rows["arm"].unique().tolist()).items():
        score_K = rows.loc[rows["arm"] == arm, "value"].to_numpy()
        level_L = np.unique([0, *score_K, 1])
        above_L = (score_K[None] > level_L[:, None]).mean(axis=1)
        axes.step(level_L, above_L, where="post", color=look.color, linestyle=look.linestyle, label=arm)
    axes.set(xlabel=f"level of {metric}", ylabel="share of scores above")
