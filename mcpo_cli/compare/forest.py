"""The picture of differences with their intervals, as SVG: importing matplotlib would take longer than comparing."""

import math
from collections.abc import Sequence
from typing import Any

from mcpo_cli.compare.comparison import Comparison
from mcpo_cli.compare.equal_cost import shown
from mcpo_cli.render.markup import signed
from mcpo_cli.render.product import Row

WIDTH, EDGE, LINE = 400, 20, 38
"""Width of the picture, free space on both sides of the axis, and height of a difference: pixels on a phone."""
LONGEST_LABEL = 48
"""Most characters of the name of a difference."""


def layout(comparison: Comparison, rows: Sequence[Row]) -> dict[str, Any]:
    """What `forest.svg.jinja` draws: a line per difference with its interval and verdict, and a band for the margin."""
    margin = comparison.margin or 0.0
    ends: list[float] = [
        row[name] for row in rows for name in ("low", "difference", "high") if math.isfinite(row[name])
    ]
    lowest, highest = min(0.0, -margin, *ends), max(0.0, margin, *ends)
    step = _step(highest - lowest)
    first, last = math.floor(lowest / step), math.ceil(highest / step)
    if first == last:  # nothing differs at all
        first, last = -1, 1

    def place(value: float) -> float:
        return round(EDGE + (value / step - first) / (last - first) * (WIDTH - 2 * EDGE), 2)

    several = len({row["arm"] for row in rows}) > 1
    return {
        "width": WIDTH,
        "line": LINE,
        "height": LINE * len(rows) + EDGE,
        "lines": [
            {"label": _label(row, several=several), "verdict": row["verdict"], "at": place(row["difference"])}
            | {name: place(row[name] if math.isfinite(row[name]) else row["difference"]) for name in ("low", "high")}
            for row in rows
        ],
        "zero": place(0),
        "band": (place(-margin), place(margin)) if margin else None,
        "ticks": [(place(at * step), signed(at * step) if at else "0") for at in range(first, last + 1)],
        "caption": caption(comparison),
    }


def caption(comparison: Comparison) -> str:
    """The meaning of the picture."""
    note = f"; grey: the margin of {comparison.margin:g}" if comparison.margin else ""
    return (
        f"Change from {comparison.baseline}; bars: {100 * (1 - comparison.level):.3g} % intervals, not adjusted{note}"
    )


def _step(span: float) -> float:
    """The distance of ticks: 1, 2 or 5 times a power of ten, at most five of them in `span`."""
    power = float(10.0 ** math.floor(math.log10((span or 1.0) / 5)))
    return next(times * power for times in (1, 2, 5, 10) if span <= 5 * times * power)


def _label(row: Row, *, several: bool) -> str:
    at = f"equal {row['at'].replace('_', ' ')}" if row["at"] else ""
    text = ", ".join(filter(None, (shown(row["benchmark"]), row["arm"] if several else "", row["model"], at)))
    return text if len(text) <= LONGEST_LABEL else f"{text[:22]}...{text[-23:]}"
