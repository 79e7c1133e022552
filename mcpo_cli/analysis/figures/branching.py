"""The two figures of a branch study: each arm's effects in every trunk run, and what is lost against what is gained."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mcpo_cli.analysis.figures import base
from mcpo_cli.statistics.stats import Floats

ROW = 0.19
"""Height of an arm's row, in inches."""
LABELS = {"lost": "lost by mastered prompts", "gained": "gained by held-out problems"}
"""The axis of each effect."""


def forest(data: pd.DataFrame, runs: Mapping[str, Mapping[str, Floats]]) -> Figure:
    """One row per arm: a point for each trunk run, and their mean with its 95 % interval.

    Args:
        data: one row per arm with `lost`, `gained` and their `_half_width`.
        runs: by effect and arm, one value per trunk run.
    """
    arms = data["arm"].tolist()
    with base.drawing():
        figure, axes = base.canvas(1, 2, width=base.PAGE, height=0.8 + ROW * len(arms), sharey=True)
        for panel, (effect, values) in zip(axes, runs.items(), strict=True):
            for place, arm in enumerate(arms):
                own = values[arm]
                panel.plot(own, np.full(len(own), place), ".", color=base.DAPO.color, alpha=0.45, markersize=4)
            panel.errorbar(
                data[effect], range(len(arms)), xerr=data[f"{effect}_half_width"],
                color="black", marker="D", markersize=3, linestyle="none", elinewidth=0.9,
            )  # fmt: skip
            panel.axvline(0, color=base.GREY, linewidth=0.8)
            panel.set_xlabel(LABELS[effect])
        axes[0].set_yticks(range(len(arms)), arms)
        axes[0].invert_yaxis()
        axes[0].plot([], [], ".", color=base.DAPO.color, alpha=0.45, label="one trunk run")
        axes[0].plot([], [], "D-", color="black", markersize=3, linewidth=0.9, label="mean with 95 % interval")
        base.legend(figure)
    return figure


def plane(data: pd.DataFrame, curve: Sequence[str]) -> Figure:
    """What mastered prompts lose against what held-out problems gain, with the curve of the step size in each panel.

    Args:
        data: as for `forest`.
        curve: the arms that differ in the step size alone, from the smallest step.
    """
    line = data.set_index("arm").reindex([arm for arm in curve if arm in set(data["arm"])])
    others = data[~data["arm"].isin(line.index)]
    count = math.ceil(len(others) / base.SERIES) or 1
    with base.drawing(others["arm"].tolist()):
        width = base.COLUMN if count == 1 else base.PAGE
        figure, axes = base.canvas(1, count, width=width, height=3.2, sharex=True, sharey=True)
        for panel, place in zip(axes, np.array_split(range(len(others)), count), strict=True):
            _draw(panel, others.iloc[place], line)
            panel.set_xlabel(LABELS["gained"])
            panel.legend(loc="upper center", bbox_to_anchor=(0.45, -0.22))
        axes[0].set_ylabel(LABELS["lost"])
    return figure


def _draw(panel: Axes, arms: pd.DataFrame, line: pd.DataFrame) -> None:
    """The arms of one panel with their 95 % intervals, and the curve from no step at all to the largest one."""
    panel.axhline(0, color=base.GREY, linewidth=0.5)
    if len(line):
        label = f"step size alone: {', '.join(line.index)}"
        panel.plot([0.0, *line["gained"]], [0.0, *line["lost"]], ".-", color=base.GREY, label=label, zorder=1)
    look = base.looks(arms["arm"].tolist())
    for _, row in arms.iterrows():
        panel.errorbar(
            row["gained"], row["lost"], yerr=row["lost_half_width"], xerr=row["gained_half_width"],
            color=look[row["arm"]].color, marker=look[row["arm"]].marker, linestyle="none", elinewidth=0.6,
            label=row["arm"],
        )  # fmt: skip
