"""The style of figures: sizes, one look per arm, panels, curves with seed bands, ticks, and files."""

import io
import math
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count, cycle, product
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import pandas as pd
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogFormatter, MaxNLocator

from mcpo_cli.measures.frames import PAIR
from mcpo_cli.redaction import visible

STYLE = Path(__file__).parents[1] / "style.mplstyle"
COLUMN, PAGE = 4.1, 5.5
"""Width of a single panel, and of the text of a paper (NeurIPS), in inches."""
GREY = "#666666"
HANDLE, CHARACTER = 0.4, 0.058
"""Width of a legend handle with its margins and of a legend character, in inches."""
LINE, LETTER = 0.16, 0.07
"""Height of a legend line and width of a title character, in inches."""
ABREAST = 3
"""Most panels side by side."""
SERIES = 4
"""Most arms in one panel of curves."""
BAND = "range of runs"
HATCHES = ("////", "\\\\\\\\", "----", "....")
"""Patterns of bands, in the order of the arms, so that bands on top of each other can be told apart."""
INTERPOLATED = "interpolated, not measured"
MARKERS = 7
"""Most markers on a curve of many points."""
KEYS = ["model", "arm", *PAIR]
"""The columns that identify a run in a figure."""
Draw = Callable[[Axes, pd.DataFrame], None]
"""Draws the rows of one panel."""


class Look(NamedTuple):
    """The look of an arm: colour (Okabe and Ito's colour-blind safe palette), line style, marker."""

    color: str
    linestyle: Any = "-"
    marker: str = "o"


DAPO, UNFILTERED = Look("#0072B2"), Look("#56B4E9", (0, (5, 1.5)), "v")
MCPO = Look("#D55E00", "-", "s")
HINGE, REWEIGHT = Look("#CC79A7", (0, (3, 1, 1, 1)), "D"), Look("#009E73", (0, (3, 1.2)), "^")
OTHERS = (Look("#E69F00", "-.", "P"), Look("#000000", ":", "X"), Look("#7F7F7F", "--", "*"), Look("#B8A800", "-", "h"))
LOOKS = {
    "DAPO": DAPO,
    "MCPO": MCPO,
    "DAPO w/o filter": UNFILTERED,
    "hinge": HINGE,
    "hinge only": HINGE,
    "w/o ReWeight": HINGE,
    "reweight": REWEIGHT,
    "reweight only": REWEIGHT,
    "w/o Hinge-KL": REWEIGHT,
    "GRPO": OTHERS[1],
}
"""Look by arm; two names of one method share a look."""
_ARMS: ContextVar[Sequence[str]] = ContextVar("arms", default=())
"""The arms of the figure being drawn: each has one look in all panels, even in panels that lack some arms."""


def looks(arms: Sequence[str]) -> dict[str, Look]:
    """The look of each arm; arms without an entry in LOOKS get unused ones in order.

    Once `OTHERS` is used up, its colours repeat with other line styles and markers.
    """
    arms, requested_arms = list(dict.fromkeys([*_ARMS.get(), *arms])), arms
    used_looks = {LOOKS[arm] for arm in arms if arm in LOOKS}
    all_looks = (
        Look(look.color, *OTHERS[(index + turn) % len(OTHERS)][1:])
        for turn in count()
        for index, look in enumerate(OTHERS)
    )
    free_looks = (look for look in all_looks if look not in used_looks)
    look_of = {arm: LOOKS.get(arm) or next(free_looks) for arm in arms}
    return {arm: look_of[arm] for arm in requested_arms}


@contextmanager
def drawing(arms: Sequence[str] = ()) -> Iterator[None]:
    """Apply the project's style without the user's settings, so that equal numbers give equal pictures.

    arms: all arms of the figure, in the order in which they get their looks.
    """
    token = _ARMS.set(arms)
    try:
        with mpl.rc_context():
            mpl.rcdefaults()
            style.use(STYLE)
            yield
    finally:
        _ARMS.reset(token)


def batches(arms: Sequence[str]) -> list[list[str]]:
    """The arms of each panel: all arms or, if there are more than SERIES, the first arm with some of the others."""
    if len(arms) <= SERIES:
        return [list(arms)]
    first_arm, *other_arms = arms
    size = math.ceil(len(other_arms) / math.ceil(len(other_arms) / (SERIES - 1)))
    return [[first_arm, *other_arms[i : i + size]] for i in range(0, len(other_arms), size)]


def canvas(
    rows: int = 1, columns: int = 1, *, width: float = COLUMN, height: float = 2.1, **share: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with `rows` x `columns` axes, listed by row; sizes in inches, `height` per row. Use inside `drawing`."""
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False, **share)
    return figure, [axes for row in grid for axes in row]


def panels(data: pd.DataFrame, *draws: Draw, height: float = 2.1) -> Figure:
    """One column of panels per model and one row per function of `draws`, with a shared y-axis; one legend on top.

    Where there are more than SERIES arms, each model has several columns (`batches`).
    """
    models, arms = (data[name].unique().tolist() for name in ("model", "arm"))
    columns = list(product(models, batches(arms)))
    with drawing(arms):
        width = COLUMN if len(columns) == 1 else PAGE
        figure, axes = canvas(len(draws), len(columns), width=width, height=height, sharex=True, sharey="row")
        for panel, (draw, (model, panel_arms)) in zip(axes, product(draws, columns), strict=True):
            draw(panel, data[(data["model"] == model) & data["arm"].isin(panel_arms)])
            panel.label_outer()
        parts = len(columns) // len(models)
        for number, (panel, (model, _)) in enumerate(zip(axes, columns, strict=False)):
            panel.set_title(model + _part(number % parts, parts))
        legend(figure)
    return figure


def grid(
    data: pd.DataFrame,
    column: str,
    draw: Draw,
    *,
    height: float = 1.5,
    widest: float = PAGE,
    together: bool = False,
    **share: Any,
) -> Figure:
    """One panel per model and value of `column`, drawn by `draw`; one legend on top.

    More than ABREAST panels of a model wrap into rows of equal length. Panels whose arms are split (`batches`) have a
    row each.

    Args:
        height, widest: height and largest width of a panel, in inches.
        together: draw all arms into one panel, for example as bars; by default at most SERIES (`batches`).
        share: `sharex` and `sharey` of the axes; by default all panels share the y-axis.
    """
    models, arms = (data[name].unique().tolist() for name in ("model", "arm"))
    batches_of: dict[Any, list[list[str]]] = {}
    for value, rows in data.groupby(column, sort=False):
        names = rows["arm"].unique().tolist()
        batches_of[value] = [names] if together else batches(names)
    values = [(value, panel_arms, part) for value, parts in batches_of.items() for part, panel_arms in enumerate(parts)]
    max_parts = max(map(len, batches_of.values()))
    # The parts of a panel are side by side, with one y-axis.
    lines = len(batches_of) if max_parts > 1 else math.ceil(len(values) / ABREAST)
    columns = max_parts if max_parts > 1 else math.ceil(len(values) / lines)
    all_values = values + [(None, [], 0)] * (lines * columns - len(values))
    cells = list(product(models, all_values))
    with drawing(arms):
        width = COLUMN if columns == 1 else min(PAGE, columns * widest)
        share = {"sharey": True, **share}
        share["sharey"] = share["sharey"] or ("row" if max_parts > 1 else False)
        figure, axes = canvas(len(models) * lines, columns, width=width, height=height, **share)
        for number, (panel, (model, (value, panel_arms, part))) in enumerate(zip(axes, cells, strict=True)):
            if value is None:
                panel.remove()
                continue
            rows = data[(data["model"] == model) & (data[column] == value) & data["arm"].isin(panel_arms)]
            if len(rows):
                draw(panel, rows)
            else:
                remark(panel, "not recorded")
            title = (value if len(models) == 1 else f"{value}, {model}") + _part(part, len(batches_of[value]))
            panel.set_title(textwrap.fill(title, int(width / columns / LETTER)))
            if number % columns:
                panel.set_ylabel("")
            panel.tick_params(labelbottom=True)
        for upper_panel, lower_panel in zip(axes, axes[columns:], strict=False):
            if upper_panel.get_xlabel() == lower_panel.get_xlabel():
                upper_panel.set_xlabel("")
        legend(figure)
    return figure


def _part(number: int, parts: int) -> str:
    """The end of the title of a panel that shows some of the arms."""
    return f" ({number + 1} of {parts})" if parts > 1 else ""


def legend(figure: Figure) -> None:
    """Add one legend for all panels above them: curves, then what bands show."""
    entries: dict[str, Artist] = {}
    for panel in figure.axes:
        handles, labels = panel.get_legend_handles_labels()
        entries |= zip(labels, handles, strict=True)
    entries = dict(sorted(entries.items(), key=lambda entry: isinstance(entry[1], PolyCollection)))
    if entries:
        max_columns = max(1, int(figure.get_figwidth() / (HANDLE + CHARACTER * max(map(len, entries)))))
        # As few rows as fit, of equal length.
        columns = math.ceil(len(entries) / math.ceil(len(entries) / max_columns))
        figure.legend(list(entries.values()), list(entries), loc="outside upper center", ncols=columns)
        # The figure grows by the legend, so that the panels keep their size.
        figure.set_figheight(figure.get_figheight() + LINE * math.ceil(len(entries) / columns))


def remark(axes: Axes, text: str) -> None:
    """Write `text` into the middle of a panel."""
    label = axes.text(0.5, 0.5, text, ha="center", va="center", wrap=True, transform=axes.transAxes)
    label.set_backgroundcolor("white")


def curves(
    axes: Axes,
    data: pd.DataFrame,
    value: str,
    x: str = "step",
    *,
    points: bool = False,
    band: bool = True,
    **style: Any,
) -> None:
    """Draw one curve per arm: the mean over its runs at each `x`, and a band from the lowest to the highest run.

    Args:
        data: columns arm, PAIR, `x` and `value`; NaN omits a point. Only an `x` with values of all runs is drawn. With
            a column `measured`, only points that were measured in all runs are marked; an end that was not is open.
        points: mark every point; else only some, so that arms differ without colour.
        band: whether to draw the band.
        style: line properties that replace the arm's own, for arms with several curves.
    """
    tables = {arm: rows.pivot_table(index=x, columns=PAIR, values=value).dropna() for arm, rows in data.groupby("arm")}
    if band and all(table.empty for table in tables.values()):
        remark(axes, "no point that all runs of an arm share")
    for (arm, look), hatch in zip(looks(data["arm"].unique().tolist()).items(), cycle(HATCHES), strict=False):
        curve = tables[arm]
        if curve.empty:
            continue
        marked_points: Any = 1 if points else math.ceil(len(curve) / MARKERS)
        if "measured" in data:
            measured_at = data[data["arm"] == arm].groupby(x)["measured"].all()
            marked_points = [index for index, position in enumerate(curve.index) if measured_at[position]]
        line_style = {"color": look.color, "linestyle": look.linestyle, "marker": look.marker, "label": arm, **style}
        axes.plot(curve.index, curve.mean(axis=1), markersize=3, markevery=marked_points, **line_style)
        if band and curve.shape[1] > 1:
            low, high = curve.min(axis=1), curve.max(axis=1)
            fill_style: Any = {"facecolor": (look.color, 0.07), "edgecolor": (look.color, 0.45)}
            axes.fill_between(curve.index, low, high, hatch=hatch, lw=0.5, **fill_style)
            named(axes, BAND)
        if "measured" in data and len(curve) - 1 not in marked_points:
            end_style: Any = {"marker": look.marker, "markerfacecolor": "white", "linestyle": ""}
            axes.plot(curve.index[-1:], curve.mean(axis=1)[-1:], color=look.color, markersize=4, zorder=3, **end_style)
            axes.plot([], [], color=GREY, label=INTERPOLATED, **end_style)


def named(axes: Axes, band: str) -> None:
    """Add the meaning of bands to the legend."""
    axes.fill_between([], [], [], facecolor=(GREY, 0.25), edgecolor=(GREY, 0.5), lw=0.4, label=band)


def reference(axes: Axes, value: float, label: str) -> None:
    """Draw a thin grey dotted line at `value`."""
    axes.axhline(value, color=GREY, linestyle=":", linewidth=0.9, label=label)


def integer_ticks(axes: Axes) -> None:
    """Put few ticks, at integers, on the x-axis; `20k` is 20 000."""
    # With its default of two ticks the locator gives up integers where all data is at one step.
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if x >= 10_000 else f"{x:g}")


METADATA: Mapping[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Metadata by file type: no date and no version, so that equal figures give equal bytes."""


def save(figure: Figure) -> dict[str, bytes]:
    """Contents of the figure's files by type; the layout, which takes most of the time, is computed once."""
    files = {}
    with drawing(), warnings.catch_warnings():
        # A name in a script that the font lacks is boxes in the picture; the page and its tables have it.
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from font", UserWarning)
        _take_literally(figure)
        for kind, metadata in METADATA.items():
            file = io.BytesIO()
            figure.savefig(file, format=kind, metadata=metadata)
            figure.set_layout_engine("none")
            files[kind] = file.getvalue()
    return files


def _take_literally(figure: Figure) -> None:
    """Keep dollar signs in names from beginning formulas; only the numbers of logarithmic axes are formulas."""
    axes = [axis for panel in figure.axes for axis in (panel.xaxis, panel.yaxis)]
    powers = [axis for axis in axes if isinstance(axis.get_major_formatter(), LogFormatter)]
    formulas = {label for axis in powers for label in axis.get_ticklabels(which="both")}
    for text in figure.findobj(Text):
        if (visible_text := visible(text.get_text())) != text.get_text():  # matplotlib's warnings would print it
            text.set_text(visible_text)
        if text not in formulas:
            text.set_parse_math(False)
