"""Declares figures: rows of runs become panels, a caption, notes and a `Product`.

A figure is a function from runs to `FigureContent`, with the decorator `figure`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mcpo_cli.measures.frames import PAIR, Runs
from mcpo_cli.render.figures import base
from mcpo_cli.render.figures.base import KEYS, Draw
from mcpo_cli.render.product import RESULTS, Artifact, Product

UNKNOWN = "not measured"


class Quantity(NamedTuple):
    """A number in a caption, for each arm."""

    name: str
    values: "pd.Series[Any]"
    """Indexed by arm and model, and by PAIR if each run has a value. Text is shown as it is."""
    unit: str = ""
    digits: int = 3

    def text(self, values: "pd.Series[Any]") -> str:
        """The values of one arm."""
        if pd.api.types.is_numeric_dtype(values):
            return spread(values.astype(float), self.unit, digits=self.digits)
        return str(values.iloc[0])


def caption(subject: str, *quantities: Quantity) -> str:
    """`Pass@1 at step 0 and at step 9 (mean and range of 3 runs): MCPO (toy-s) 0.120 (0.098 to 0.145), 0.412 (...).`

    It begins with `subject` and the quantities' names. An arm without any measured quantity is left out.
    """
    texts: dict[str, dict[str, str]] = {}
    runs = 0
    for quantity in quantities:
        levels = [str(name) for name in quantity.values.index.names if name not in PAIR]
        groups: Iterable[tuple[Any, Any]] = quantity.values.groupby(level=levels, sort=False)
        for key, values in groups:
            names = dict(zip(levels, key, strict=True))
            label = names.pop("arm") + (f" ({', '.join(names.values())})" if names else "")
            texts.setdefault(label, {})[quantity.name] = quantity.text(values)
            runs = max(runs, len(values) if len(levels) < quantity.values.index.nlevels else 0)
    *items, last = (quantity.name for quantity in quantities)
    listed = " and ".join([", ".join(items), last] if items else [last])
    parts = [
        f"{label} {', '.join(words.get(quantity.name, UNKNOWN) for quantity in quantities)}"
        for label, words in texts.items()
        if {*words.values()} != {UNKNOWN}
    ]
    head = " ".join(filter(None, [subject, listed, f"({_runs(runs)})" if runs else ""]))
    return f"{head}: {'; '.join(parts) or UNKNOWN}."


def per_run(rows: pd.DataFrame, value: str, *levels: str) -> "pd.Series[float]":
    """The mean of `value` over the rows of each run, indexed by KEYS and `levels`."""
    return rows.groupby([*KEYS, *levels], sort=False)[value].mean()


def spread(values: Iterable[float], unit: str = "", *, digits: int = 1) -> str:
    """`0.98 nats (0.80 to 1.14)`: mean, lowest and highest of one value per run, ignoring NaN."""
    numbers = [value for value in values if not math.isnan(value)]
    if not numbers:
        return UNKNOWN
    mean = f"{math.fsum(numbers) / len(numbers):.{digits}f}{unit}"
    return mean if len(numbers) == 1 else f"{mean} ({min(numbers):.{digits}f} to {max(numbers):.{digits}f})"


def averaged(data: pd.DataFrame) -> str:
    """Words that explain the numbers of `spread`, for rows of runs."""
    return _runs(int(_runs_by_arm(data).max()))


def _runs(count: int) -> str:
    return "one run" if count == 1 else f"mean and range of {count} runs"


def _runs_by_arm(data: pd.DataFrame) -> "pd.Series[int]":
    """The number of runs of one model, by arm."""
    return data.drop_duplicates(["arm", *PAIR]).groupby("arm").size()


def band_note(data: pd.DataFrame) -> str:
    """A note that explains curves and bands."""
    runs = _runs_by_arm(data)
    if runs.max() == 1:
        return "One run, therefore no band."
    number = f"{runs.min()}" if runs.min() == runs.max() else f"{runs.min()} to {runs.max()}"
    return f"Line: mean over {number} runs. Band: from the lowest to the highest run."


def left_out(data: pd.DataFrame, runs: Runs, what: str) -> list[str]:
    """A note on the runs without rows in `data`, if there are any. what: the records that they lack."""
    ids = set(data["run_id"])
    gaps = [run for run in runs.planned if run.spec.run_id not in ids]
    arms = ", ".join(dict.fromkeys(run.arm for run in gaps))
    return [f"{len(gaps)} of {len(runs.planned)} runs have no {what}: {arms}."] if gaps else []


def titled(title: str, runs: Runs) -> str:
    """`title` with the scale, regime, seeds and step size, as far as all runs share them."""
    specs = [run.spec for run in runs.planned]
    seeds = len({(spec.seed_of_base, spec.seed) for spec in specs})
    facts = [
        dict.fromkeys(f"scale {spec.scale}" for spec in specs),
        dict.fromkeys(f"regime {spec.regime}" for spec in specs),
        [f"{seeds} seed{'s' if seeds > 1 else ''}"],
        dict.fromkeys(f"{spec.train.prompts} prompts x {spec.train.rollouts} rollouts a step" for spec in specs),
    ]
    return f"{title} ({', '.join(first for (first, *others) in facts if not others)})"


def blank(text: str) -> Figure:
    """A figure that contains only `text`."""
    with base.drawing():
        figure, (axes,) = base.canvas(height=1.2)
        axes.set_axis_off()
        base.remark(axes, text)
    return figure


def nothing(title: str, runs: Runs, what: str, data: pd.DataFrame) -> Product:
    """The product if no run recorded `what`. data: an empty frame with the figure's columns."""
    sentence = f"No run recorded {what}."
    return Product(titled(title, runs), sentence, data, figure=blank(sentence))


def lines(
    value: str, ylabel: str, x: str = "step", xlabel: str = "global step", *, zero: bool = False, **style: Any
) -> Draw:
    """A function that draws `value` over `x`, one curve per arm.

    Args:
        zero: whether the y-axis starts at 0.
        style: options of `base.curves`.
    """

    def draw(axes: Axes, rows: pd.DataFrame) -> None:
        base.curves(axes, rows, value, x, **{"points": True, **style})
        base.integer_ticks(axes)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        if zero:
            # `auto` lets the next panel, which shares this axis, raise the upper limit.
            axes.set_ylim(bottom=0, auto=True)

    return draw


class FigureContent(NamedTuple):
    """The content of a figure."""

    rows: pd.DataFrame
    """Tidy rows with KEYS, and `run_id` where a row belongs to one run; no rows if nothing was recorded."""
    sentence: str
    """The caption; not used if there are no rows."""
    notes: Sequence[str] = ()
    """Explanations, besides those of bands and of runs without rows."""
    drawn: pd.DataFrame | None = None
    """The rows that are drawn, if they differ from `rows`."""


def figure(
    name: str,
    title: str,
    suite: str,
    *draws: Draw,
    what: str,
    section: str = RESULTS,
    place: str = "",
    arms: Callable[[Runs], Sequence[str]] | Sequence[str] = (),
    by: str = "",
    band: bool = True,
    **layout: Any,
) -> Callable[[Callable[[Runs], FigureContent]], Artifact]:
    """Turns a function from runs to `FigureContent` into the artifact `name`.

    Args:
        draws: one function per row of panels; a single one if there is `by`.
        what: the records without which a run is left out.
        section, place: see `Artifact`.
        arms: the arms to show; empty for all.
        by: the column with one panel for each of its values; by default there is one panel per model.
        band: whether curves have bands.
        layout: see `base.grid` and `base.panels`.
    """

    def build(show: Callable[[Runs], FigureContent], data: Mapping[str, Runs]) -> Product:
        runs = data[suite]
        names = arms(runs) if callable(arms) else arms
        runs = runs.of(names) if names else runs
        rows, sentence, notes, points = show(runs)
        if rows.empty:
            return nothing(title, runs, what, rows)
        points = rows if points is None else points
        picture = base.grid(points, by, *draws, **layout) if by else base.panels(points, *draws, **layout)
        notes = [*([band_note(rows)] if band else []), *notes]
        notes += left_out(rows, runs, what) if "run_id" in rows else []
        return Product(titled(title, runs), sentence, rows, notes=notes, figure=picture)

    def declare(show: Callable[[Runs], FigureContent]) -> Artifact:
        return Artifact(name, title, section, (suite,), lambda data: build(show, data), place, by_regime=by == "regime")

    return declare
