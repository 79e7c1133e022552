"""The figure of a comparison: learning curves at equal cost along each axis, and performance profiles."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mcpo_cli.analysis.comparison import Comparison, records
from mcpo_cli.analysis.equal_cost import AVERAGE, UNITS
from mcpo_cli.analysis.figures import base

LEVELS = np.linspace(0, 1, 101)


def figure(compared: Comparison) -> Figure:
    """A row of panels for each axis and one for the profiles, a column for each model; one legend on top."""
    with base.drawing():
        width = base.COLUMN if len(compared.models) == 1 else base.PAGE
        drawn, panels = base.canvas(len(compared.axes) + 1, len(compared.models), width=width, height=1.9)
        places = iter(panels)
        for at in compared.axes:
            for model in compared.models:
                _curves(next(places), compared, at, model)
        for model in compared.models:
            _profile(next(places), compared.final[compared.final["model"] == model], compared.metric)
        for model, panel in zip(compared.models, panels, strict=False):
            panel.set_title(model)
        base.legend(drawn)
    return drawn


def _curves(axes: Axes, compared: Comparison, at: str, model: str) -> None:
    rows = compared.curves
    here = rows[(rows["at"] == at) & (rows["model"] == model)]
    base.curves(axes, here, "value", "x", points=True)
    for score in records(compared.before, model=model, tier=AVERAGE, metric=compared.metric):
        base.reference(axes, score["mean"], score["arm"])
    base.percent(axes)
    base.integer_ticks(axes)
    axes.set(xlabel=UNITS[at], ylabel=f"held-out {compared.metric}")


def _profile(axes: Axes, here: pd.DataFrame, metric: str) -> None:
    """The share of an arm's runs and tiers that score more than each level (Agarwal et al. 2021, Figure 3)."""
    for arm, look in base.looks(here["arm"].unique().tolist()).items():
        score_K = here.loc[here["arm"] == arm, "value"].to_numpy()
        above = (score_K[None] > LEVELS[:, None]).mean(axis=1)
        axes.plot(LEVELS, above, color=look.color, linestyle=look.linestyle, label=arm)
    base.percent(axes)
    base.percent(axes, "x")
    axes.set(xlabel=f"level of {metric}", ylabel="runs and tiers above it")
