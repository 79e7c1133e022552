"""The figure of a comparison: learning curves at equal cost along each axis, and performance profiles."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mcpo_cli.analysis.comparison import Comparison, records
from mcpo_cli.analysis.equal_cost import AVERAGE, UNITS
from mcpo_cli.analysis.figures import base

PROFILE = "profile"
"""Used as an axis, for the performance profiles."""


def figure(compared: Comparison) -> Figure:
    """A row of panels for each axis and one for the profiles; columns for each model and at most four arms."""
    columns = list(product(compared.models, base.batches(compared.arms)))
    with base.drawing(compared.arms):
        width = base.COLUMN if len(columns) == 1 else base.PAGE
        drawn, panels = base.canvas(len(compared.axes) + 1, len(columns), width=width, height=1.7, sharey="row")
        cells = product([*compared.axes, PROFILE], columns)
        for index, (panel, (at, (model, arms))) in enumerate(zip(panels, cells, strict=True)):
            if at == PROFILE:
                _profile(panel, _of(compared.final, model, arms), compared.metric)
            else:
                _curves(panel, compared, at, model, arms)
            if index % len(columns):
                panel.set_ylabel("")
                panel.tick_params(labelleft=False)
        for panel, (model, _) in zip(panels, columns, strict=False):
            panel.set_title(model)
        base.legend(drawn)
    return drawn


def _of(rows: pd.DataFrame, model: str, arms: Sequence[str]) -> pd.DataFrame:
    return rows[(rows["model"] == model) & rows["arm"].isin(arms)]


def _curves(axes: Axes, compared: Comparison, at: str, model: str, arms: Sequence[str]) -> None:
    here = _of(compared.paths, model, arms)
    base.curves(axes, here[here["at"] == at], "value", "x", points=True)
    for score in records(compared.before, model=model, tier=AVERAGE, metric=compared.metric):
        base.reference(axes, score["mean"], score["arm"])
    base.integer_ticks(axes)
    axes.set(xlabel=UNITS[at], ylabel=f"held-out {compared.metric}")


def _profile(axes: Axes, here: pd.DataFrame, metric: str) -> None:
    """The share of an arm's runs and tiers that score more than each level (Agarwal et al. 2021, Figure 3)."""
    for arm, look in base.looks(here["arm"].unique().tolist()).items():
        score_K = here.loc[here["arm"] == arm, "value"].to_numpy()
        level_L = np.unique([0, *score_K, 1])
        above_L = (score_K[None] > level_L[:, None]).mean(axis=1)
        axes.step(level_L, above_L, where="post", color=look.color, linestyle=look.linestyle, label=arm)
    axes.set(xlabel=f"level of {metric}", ylabel="runs and tiers above it")
