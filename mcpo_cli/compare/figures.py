"""The pictures of a comparison: differences with their intervals, and pass@k against k."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from mcpo_cli.analysis.figures import base
from mcpo_cli.compare.comparison import ALL, Comparison

PALETTE = (
    base.OTHERS[1], base.DAPO, base.MCPO, base.REWEIGHT, base.HINGE, base.UNFILTERED, base.OTHERS[0], base.OTHERS[2],
    base.OTHERS[3],
)  # fmt: skip
ROW = 0.24
"""Height of a difference in inches."""
WIDE = 5.5
"""Width of the text of a paper in inches."""
APART = 0.05
"""Distance between two sides' points along log2 k, so that their intervals do not hide each other."""
MOST_PANELS = 12
"""Most benchmarks whose curves are drawn: the first ones."""


def forest(found: Comparison, margin: float | None = None) -> Figure:
    """One line per difference: its value, interval and verdict; and a band for the margin, if there is one."""
    rows = found.differences[found.differences["metric"] == found.differences["metric"].iloc[0]]
    arms = list(rows["arm"].unique())
    looks = _looks([found.baseline, *arms])
    with base.drawing():
        figure, (axes,) = base.canvas(width=WIDE, height=0.75 + ROW * len(rows))
        for index, row in enumerate(rows.to_dict("records")):
            look, error = looks[row["arm"]], [[row["difference"] - row["low"]], [row["high"] - row["difference"]]]
            axes.errorbar(
                row["difference"], index, xerr=error, fmt=look.marker, color=look.color, markersize=4, capsize=2
            )
            axes.annotate(
                row["verdict"], (1.02, index), xycoords=("axes fraction", "data"), va="center", annotation_clip=False
            )
        axes.axvline(0, color=base.GREY, linewidth=0.8)
        if margin:
            axes.axvspan(-margin, margin, color=base.GREY, alpha=0.15, linewidth=0)
        names = rows["benchmark"].replace(ALL, "mean")
        labels = [f"{name}, {arm}" if len(arms) > 1 else name for name, arm in zip(names, rows["arm"], strict=True)]
        axes.set_yticks(range(len(rows)), [_short(label) for label in labels])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        base.points(axes, "x")
        about = f"; grey: the margin of {100 * margin:g} points" if margin else ""
        axes.set_xlabel(
            f"minus {_short(found.baseline)}, percentage points, with {100 * (1 - found.level):.3g}% interval{about}"
        )
    return figure


def curves(found: Comparison) -> Figure | None:
    """pass@k against k with 95 % intervals, one panel per benchmark; None if all have one sample."""
    rows = found.curves
    if rows.empty or rows["k"].max() == 1:
        return None
    data = rows[rows["benchmark"].isin(rows["benchmark"].unique()[:MOST_PANELS])].assign(model="")
    looks = _looks(list(rows["arm"].unique()))
    return base.grid(data, "benchmark", lambda axes, here: _curves(axes, here, looks), sharey=False)


def _curves(axes: Axes, data: pd.DataFrame, looks: dict[str, base.Look]) -> None:
    for index, (arm, look) in enumerate(looks.items()):
        rows = data[data["arm"] == arm]
        beside = 2 ** (APART * (index - (len(looks) - 1) / 2))
        axes.errorbar(
            rows["k"] * beside, rows["mean"], yerr=[rows["mean"] - rows["low"], rows["high"] - rows["mean"]],
            color=look.color, linestyle=look.linestyle, marker=look.marker, markersize=3, elinewidth=0.8, capsize=2,
            label=_short(arm),
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    k = sorted(data["k"].unique())
    axes.xaxis.set_major_locator(FixedLocator(k[:: (len(k) + 4) // 5]))  # at most five ticks
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda k, _: f"{k:g}")
    base.percent(axes)
    axes.set(xlabel="k", ylabel="pass@k, 95% interval")


def _looks(names: Sequence[str]) -> dict[str, base.Look]:
    """The look of each side, the baseline's in black."""
    return {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(names)}


def _short(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:18]}...{name[-19:]}"
