"""Figure 1: what DAPO and MCPO do with a group of rollouts, by its accuracy. This is our drawing, not the paper's."""

import textwrap
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.config.schema import Train
from mcpo_cli.methods import Method, get
from mcpo_cli.methods.mcpo import Mcpo
from mcpo_cli.probes.base import CLASSES, class_of

TITLE = "What DAPO and MCPO do with a prompt, by the accuracy of its rollouts"
G = Train().rollouts
METHODS = {"DAPO": get("dapo"), "MCPO": get("mcpo")}
CONDITIONS = ("p = 0", "0 < p \N{LESS-THAN OR EQUAL TO} \N{VULGAR FRACTION ONE HALF}",
              "\N{VULGAR FRACTION ONE HALF} < p < 1", "p = 1")  # fmt: skip
WIDTH, HEIGHT = 100.0, 40.0
"""Size of the drawing in its own units."""
LEFT, TOP, CELL = 27.0, 33.0, (17.4, 14.5)
"""Left and top edge of the cells, and width and height of one cell."""
GAP = 0.9
"""Space between cells."""


def build(data: Mapping[str, Runs]) -> Product:
    """One row per method and number of right rollouts."""
    frame = pd.DataFrame(list(_rows()))
    with base.drawing():
        figure, (axes,) = base.canvas(width=base.PAGE, height=2.75)
        axes.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
        axes.set_axis_off()
        _draw_sampling(axes)
        for place, (name, condition) in enumerate(zip(CLASSES, CONDITIONS, strict=True)):
            x = _left(place) + CELL[0] / 2
            axes.text(x, TOP + 4.6, name.replace("_", " "), ha="center", weight="bold")
            axes.text(x, TOP + 1.2, condition, ha="center")
        for row, (arm, method) in enumerate(METHODS.items()):
            _draw_method(axes, frame[frame["method"] == arm], method, TOP - (row + 1) * (CELL[1] + GAP))
    notes = [
        f"Bars: W(p) for p = k/{G}, one bar per k: sqrt(p (1 - p)) (Eq. 6), under MCPO only up to p = 1/2 (Eq. 14). "
        f"All bars have one scale; the highest is {frame['weight'].max():.2f}.",
        "The filter is dynamic sampling: it replaces dropped prompts with newly sampled ones.",
    ]
    return Product(TITLE, _sentence(frame), frame, notes=notes, figure=figure)


def _rows() -> Iterator[dict[str, object]]:
    for arm, method in METHODS.items():
        for k in range(G + 1):
            group = class_of(k / G)
            weight = float(method.query_weight(k / G))
            yield {"method": arm, "class": group, "p": k / G, "weight": weight, "what": _treatment(method, group)}


def _treatment(method: Method, group: str) -> str:
    """What the method does with a prompt of the class `group`, in a few words."""
    if group in ("minority", "majority_correct"):
        weight = method.query_weight(np.arange(1, G) / G)
        inside = weight[: G // 2] if group == "minority" else weight[G // 2 :]
        if np.allclose(inside, inside[0]):
            return f"weight stays at {inside[0]:.1f}"
        return "weight grows with p" if inside[-1] > inside[0] else "weight shrinks with p"
    if method.dynamic_sampling:
        return "dropped by the filter"
    if group == "mastered" and isinstance(method, Mcpo) and method.penalises_drift:
        return f"drift beyond {method.delta:g} nats penalised (hinge-KL)"
    return "kept in the batch, no gradient"


def _left(place: int) -> float:
    return LEFT + place * (CELL[0] + GAP)


def _box(
    axes: Axes, x: float, y: float, size: tuple[float, float], *, fill: str, edge: str, dashed: bool = False
) -> None:
    style = "round,pad=0,rounding_size=1"
    line = (0, (3, 2)) if dashed else "-"
    axes.add_patch(
        FancyBboxPatch((x, y), *size, boxstyle=style, facecolor=fill, edgecolor=edge, linewidth=0.8, linestyle=line)
    )


def _draw_sampling(axes: Axes) -> None:
    """Draw the way from a prompt to its accuracy, from top to bottom."""
    width, height = 17.0, 8.6
    steps = ("prompt x", f"G = {G} rollouts\nof the old policy", "p = share of right\nrollouts")
    for place, words in enumerate(steps):
        y = TOP - GAP - height - place * (height + 2.0)
        _box(axes, 0.5, y, (width, height), fill="#f4f4f4", edge="#222222")
        axes.text(0.5 + width / 2, y + height / 2, words, ha="center", va="center", fontsize=7)
        if place:
            arrow = {"arrowstyle": "-|>", "color": "#222222", "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (0.5 + width / 2, y + height), (0.5 + width / 2, y + height + 2.0), arrowprops=arrow)


def _draw_method(axes: Axes, rows: pd.DataFrame, method: Method, bottom: float) -> None:
    arm = rows["method"].iloc[0]
    look = base.looks([arm])[arm]
    axes.text(LEFT - 2.0, bottom + CELL[1] / 2, arm, ha="right", va="center", weight="bold", color=look.color)
    for place, (_, here) in enumerate(rows.groupby("class", sort=False)):
        x, words = _left(place), here["what"].iloc[0]
        dropped = words.startswith("dropped")
        edge = base.GREY if dropped else look.color
        _box(axes, x, bottom, CELL, fill="#f4f4f4" if dropped else "white", edge=edge, dashed=dropped)
        middle = x + CELL[0] / 2
        if here["weight"].any():
            width = (CELL[0] - 3.0) / (G // 2)
            left = middle - len(here) / 2 * width + np.arange(len(here)) * width
            axes.bar(left, 15 * here["weight"], 0.75 * width, bottom=bottom + 5.2, align="edge", color=look.color)
            axes.text(middle, bottom + 2.5, words, ha="center", va="center", fontsize=7)
        else:
            axes.text(middle, bottom + CELL[1] / 2, textwrap.fill(words, 18), ha="center", va="center", fontsize=7)


def _sentence(frame: pd.DataFrame) -> str:
    """Weights of almost mastered prompts and treatment of mastered prompts under both methods."""
    near = frame[frame["p"] == 1 - 1 / G].set_index("method")["weight"]
    ends = frame[frame["p"] == 1].set_index("method")["what"]
    parts = [f"{near[arm]:.2f} under {arm}" for arm in METHODS]
    kept = [f"{ends[arm]} under {arm}" for arm in METHODS]
    return (
        f"A prompt with {G - 1} of {G} right rollouts has the weight {' and '.join(parts)}; treatment of "
        f"mastered prompts: {', '.join(kept)}."
    )


ARTIFACT = Artifact("fig1", TITLE, "paper", (), build, "Figure 1")
