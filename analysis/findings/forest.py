"""A forest plot: one line per effect, at a width that a phone shows."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from mcpo_cli.render.figures import base

from .effects import Effect, Estimate

WIDTH = 4.2
"""Inches: labels stay legible at 360 pixels."""


def share(value: float, digits: int = 3) -> str:
    """`.0078`, without the leading 0."""
    return f"{value:.{digits}f}".replace("0.", ".", 1)


def signed(value: float, digits: int = 3) -> str:
    """`-.0016`."""
    return f"{value:+z.{digits}f}".replace("0.", ".", 1)


def draw(selection: Mapping[str, Effect], estimates: Mapping[str, Estimate]) -> Figure:
    """Each effect as a share of the control's value, with its 95 % interval; filled if that excludes 0.

    Registered contrasts are circles, exploratory ones diamonds.
    """
    with base.drawing():
        figure, axes = base.canvas(1, 1, width=WIDTH, height=0.7 + 0.36 * len(selection))
        panel = axes[0]
        for at, (name, effect) in enumerate(selection.items()):
            entry = estimates[name]
            middle, half = 100 * entry.value / abs(entry.control), 100 * entry.half_width / abs(entry.control)
            clear = abs(middle) > half
            panel.errorbar(
                middle, at, xerr=half, color="black", marker="o" if effect.registered else "D", markersize=4.5,
                markerfacecolor="black" if clear else "white", elinewidth=1.1,
            )  # fmt: skip
            panel.text(0.01, at - 0.28, effect.label, transform=panel.get_yaxis_transform(), fontsize=7.5, va="bottom")
        panel.axvline(0, color=base.GREY, linewidth=0.8)
        panel.set_yticks([])
        panel.set_ylim(len(selection) - 0.5, -0.9)
        panel.set_xlabel("change in % of the value without")
    return figure
