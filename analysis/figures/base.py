"""What the figures share: sizes, one look an arm everywhere, curves with seed bands, how a figure becomes a file."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import pandas as pd
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mcpo_cli.analysis.frames import Runs

STYLE = Path(__file__).parents[1] / "style.mplstyle"
COLUMN, PAGE = 3.35, 6.9
"""Inches: the width of one column and of both."""
KEYS = ["model", "arm", "seed"]


class Look(NamedTuple):
    """How an arm is drawn: a colour (Okabe and Ito's, distinct also to the colour-blind), dashes, a marker."""

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
    "hinge only": HINGE,
    "w/o ReWeight": HINGE,
    "reweight only": REWEIGHT,
    "w/o Hinge-KL": REWEIGHT,
    "GRPO": OTHERS[1],
}
"""By arm: two names of one method look alike."""


def looks(arms: Sequence[str]) -> dict[str, Look]:
    """The look of each arm; arms without one of their own share out the rest in their order."""
    spare = iter(OTHERS)
    return {arm: LOOKS.get(arm) or next(spare) for arm in arms}


@contextmanager
def drawing() -> Iterator[None]:
    """The project's style and nothing of the user's, so that the same numbers give the same picture."""
    with mpl.rc_context():
        mpl.rcdefaults()
        style.use(STYLE)
        yield


def canvas(rows: int = 1, columns: int = 1, *, width: float = COLUMN, height: float = 2.1, **share: Any) -> tuple[
    Figure, list[Axes]
]:  # fmt: skip
    """A figure of `rows` x `columns` axes, row by row; inches, `height` of one row. Call it inside `drawing`."""
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False, **share)
    return figure, [axes for row in grid for axes in row]


def panels(data: pd.DataFrame, draw: Callable[[Axes, pd.DataFrame], None], *, height: float = 2.1) -> Figure:
    """A panel a model, side by side with one vertical axis, each drawn by `draw`; the legend in the first."""
    models = data["model"].unique().tolist()
    with drawing():
        figure, axes = canvas(1, len(models), width=COLUMN if len(models) == 1 else PAGE, height=height, sharey=True)
        for panel, model in zip(axes, models, strict=True):
            draw(panel, data[data["model"] == model])
            panel.set_title(model)
            if panel is not axes[0]:
                panel.set_ylabel("")
                if legend := panel.get_legend():
                    legend.remove()
    return figure


def curves(axes: Axes, data: pd.DataFrame, value: str, x: str = "step", *, points: bool = False) -> None:
    """A curve an arm: mean over seeds at each `x`, and a band from the lowest to the highest seed.

    Args:
        data: columns arm, seed, `x` and `value`; NaN leaves a point out. Only an `x` that every seed has is drawn.
        points: mark each point, for curves of few.
    """
    for arm, look in looks(data["arm"].unique().tolist()).items():
        here = data[data["arm"] == arm].pivot_table(index=x, columns="seed", values=value).dropna()
        drawn = {"color": look.color, "linestyle": look.linestyle, "marker": look.marker if points else None}
        axes.plot(here.index, here.mean(axis=1), label=arm, **drawn)
        if here.shape[1] > 1:
            axes.fill_between(here.index, here.min(axis=1), here.max(axis=1), color=look.color, alpha=0.16, linewidth=0)


def band_note(data: pd.DataFrame) -> str:
    """What the curves and bands are."""
    seeds = data.groupby("arm")["seed"].nunique()
    if seeds.max() == 1:
        return "One seed: there is no band."
    shown = f"{seeds.min()}" if seeds.min() == seeds.max() else f"{seeds.min()} to {seeds.max()}"
    return f"Line: mean over {shown} seeds. Band: from the lowest to the highest seed."


def percent(axes: Axes, axis: str = "y") -> None:
    """Shares as percentages."""
    from matplotlib.ticker import PercentFormatter

    (axes.yaxis if axis == "y" else axes.xaxis).set_major_formatter(PercentFormatter(1.0, decimals=None))


def save(figure: Figure, kind: str) -> bytes:
    """The figure as a file of `kind` (png, pdf), without date and version: equal figures are equal bytes."""
    metadata: Mapping[str, Any] = {
        "png": {"Software": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }[kind]
    file = io.BytesIO()
    with drawing():
        figure.savefig(file, format=kind, metadata=dict(metadata))
    return file.getvalue()


def titled(title: str, runs: Runs) -> str:
    """`title` with what the runs are."""
    spec = runs.cells[0].spec
    return f"{title} (scale {spec.scale}, regime {spec.regime})"
