"""Figures of a comparison: curves at equal cost with performance profiles, and the report's first figure."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mcpo_cli.analysis.comparison import Choice, Comparison, compare
from mcpo_cli.analysis.equal_cost import AVERAGE, UNITS
from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.figures.declare import lines, titled
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.tables import words

LEVELS = np.linspace(0, 1, 101)


def figure(compared: Comparison) -> Figure:
    """One row of panels for each axis and one for the profiles, one column for each model; one legend on top."""
    models = compared.models
    with base.drawing():
        width = base.COLUMN if len(models) == 1 else base.PAGE
        drawn, panels = base.canvas(len(compared.axes) + 1, len(models), width=width, height=1.9)
        panel_AM = np.reshape(np.array(panels, dtype=object), (-1, len(models)))
        for model, column in zip(models, panel_AM.T, strict=True):
            column[0].set_title(model)
            for at, axes in zip(compared.axes, column, strict=False):
                _draw_curves(axes, compared, at, model)
            _draw_profile(column[-1], compared.final[compared.final["model"] == model], compared.metric)
        base.legend(drawn)
    return drawn


def _draw_curves(axes: Axes, compared: Comparison, at: str, model: str) -> None:
    rows = compared.curves
    here = rows[(rows["at"] == at) & (rows["model"] == model)]
    lines("value", f"held-out {compared.metric}", "x", UNITS[at])(axes, here)
    for score in compared.before:
        if (score.model, score.tier, score.metric) == (model, AVERAGE, compared.metric):
            base.reference(axes, score.seeds.value, score.arm)


def _draw_profile(axes: Axes, here: pd.DataFrame, metric: str) -> None:
    """The share of an arm's runs and tiers that score more than each level (Agarwal et al. 2021, Figure 3)."""
    for arm, look in base.looks(here["arm"].unique().tolist()).items():
        score_K = here.loc[here["arm"] == arm, "value"].to_numpy()
        above = (score_K[None] > LEVELS[:, None]).mean(axis=1)
        axes.plot(LEVELS, above, color=look.color, linestyle=look.linestyle, label=arm)
    base.percent(axes)
    base.percent(axes, "x")
    axes.set(xlabel=f"level of {metric}", ylabel="runs and tiers above it")


TITLE = "MCPO against DAPO at a glance"
ROW, FRAME = 0.36, 0.55
"""Height of a row and of the figure's frame, in inches."""


def build_overview(data: Mapping[str, Runs]) -> Product:
    """One row per model, arm and axis of cost: the difference of the average pass@1 to the baseline's."""
    (runs,) = data.values()
    compared = compare(runs, Choice())
    rows = [
        (one.model, one.arm, one.at, one.metric, one.effect.mean, one.effect.low, one.effect.high, one.effect.n)
        for one in compared.headline
    ]
    frame = pd.DataFrame(rows, columns=["model", "arm", "at", "metric", "difference", "low", "high", "seeds"])
    parts = [
        f"{one.arm} {compared.in_words(one)} on {one.model} at equal {UNITS[one.at]} ({words.change(one.effect)})"
        for one in compared.headline
    ]
    sentence = f"Average held-out {compared.metric}: {'; '.join(parts)}."
    note = (
        "Points: mean over seeds of the arm's average pass@1 minus the baseline's, paired by seed. Bars: 95 % "
        "t-interval, for at least three seeds. Open points: p is above .05."
    )
    sentence = " ".join([sentence, *words.against_before(compared)])
    return Product(titled(TITLE, runs), sentence, frame, notes=[note], figure=_draw_overview(compared))


def _draw_overview(compared: Comparison) -> Figure:
    """One row for each difference, the first on top."""
    looks, rows = base.looks(compared.arms), list(enumerate(reversed(compared.headline)))
    with base.drawing():
        drawn, (axes,) = base.canvas(height=FRAME + ROW * len(rows))
        axes.axvline(0, color=base.GREY, linewidth=0.9)
        for row, one in rows:
            look, effect = looks[one.arm], one.effect
            fill = "white" if one.verdict == "open" else look.color
            marks: dict[str, Any] = {"fmt": look.marker, "color": look.color, "markerfacecolor": fill, "markersize": 6}
            axes.errorbar([effect.mean], [row], xerr=[effect.half_width], **marks)
        labels = [f"{one.arm}, {one.model},\nequal {UNITS[one.at]}" for _, one in rows]
        axes.set_yticks(range(len(rows)), labels)
        axes.margins(y=0.5 / len(rows))
        axes.set_xlabel(f"{compared.metric} minus that of {compared.baseline}, in points")
        base.points(axes, "x")
        base.integer_ticks(axes)
    return drawn


ARTIFACT = Artifact("overview", TITLE, "summary", ("table1",), build_overview, failed_too=True)
