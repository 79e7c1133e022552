"""The table and figure of the atlas of estimators, from its rows."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mcpo_cli.render.figures import base
from mcpo_cli.render.markup import Columns, Grid
from mcpo_cli.render.product import Product

from .conditions import CORRECTIONS, ROUNDING

COLUMNS = (
    "arm", "rollouts", "size", "stale", "rounding", "correction", "batches", "gain", "bias", "cosine_mean",
    "cosine_mean_se", "bias_scaled", "noise", "cosine", "cosine_se",
    "commit", "cpu",
)  # fmt: skip
G = 16
"""Rollouts per prompt in most columns of the table."""
NOTES = (
    "8 prompts of accuracy .02 to .98, 40 responses of 1 to 3 tokens each, a logit for each next token of each prompt: "
    "the gradient g of expected accuracy is a sum. A method's estimate is minus the gradient of its own loss on one "
    "batch with a group of G rollouts of every prompt; filters are left out.",
    "gain: length of the mean estimate along g, over |g|. cos mean: cosine of the mean estimate and g; sqrt(1 - cos^2) "
    "is the bias that is left after the best scaling. noise: standard deviation over the length of the mean. cos: of a "
    "single estimate and g, root mean square over batches; cos^2 is the share of the progress of a step along g that a "
    "step along one estimate is expected to make, each of its best length.",
    "k: gradient steps between sampling and the estimate, half of each along g and half at random; they are the same "
    "for every method. A method that clips is no estimator of g there on purpose: what has moved far enough in the "
    "right direction is left out of its mean.",
    "rounded: responses are drawn from logits rounded to integers (train.sampler_rounding=1), on-policy otherwise; "
    "token TIS, sequence TIS: the same with train.correction=token-truncate and sequence-truncate.",
    "mc_grpo draws one more rollout, its pivot; a dash: the method has no groups of that size.",
)
SERIES = (
    ("mean, G = 16", "cosine_mean", G, "#D55E00", "s"),
    ("one estimate, G = 64", "cosine", 64, "#0072B2", "o"),
    ("one estimate, G = 16", "cosine", G, "#009E73", "^"),
    ("one estimate, G = 2", "cosine", 2, "#000000", "x"),
)
"""Series of a panel: label, column, rollouts, colour and marker."""
LINE = 0.125
"""Inches of the figure for each method."""


def product(title: str, data: pd.DataFrame) -> Product:
    """Table, figure and tidy data."""
    rows = [_row(str(arm), part) for arm, part in data.groupby("arm", sort=False)]
    candidates = [row for row in rows if not math.isnan(row["cosine"])]
    sentence = f"No arm has groups of G = {G}."
    if candidates:
        first, last = (pick(candidates, key=lambda row: row["cosine"]) for pick in (max, min))
        sentence = (
            f"On-policy, at G = {G}, the cosine of a single estimate and the gradient goes from {last['cosine']:.2f} "
            f"({last['arm']}) to {first['cosine']:.2f} ({first['arm']})."
        )
    return Product(title, sentence, data, [grid(data)], list(NOTES), figure(data))


def grid(data: pd.DataFrame) -> Grid:
    """One line per arm."""
    rows = [_row(str(arm), part) for arm, part in data.groupby("arm", sort=False)]
    columns: Columns = {"method": "arm"} | {
        heading: _cell(name)
        for heading, name in {
            "gain": "gain",
            "cos mean": "cosine_mean",
            "noise": "noise",
            "cos G=2": "cosine_2",
            "G=16": "cosine",
            "G=64": "cosine_64",
            "cos mean k=4": "mean_4",
            "k=16": "mean_16",
            "cos k=4": "one_4",
            "cos k=16": "one_16",
            "cos mean rounded": "rounded",
            "token TIS": "by_token",
            "sequence TIS": "by_sequence",
        }.items()
    }
    return Grid.of(f"Estimates on-policy with G = {G}, unless a heading says otherwise", rows, columns, labels=1)


def _cell(name: str) -> Any:
    return lambda row: "-" if math.isnan(row[name]) else f"{row[name]:.2f}"


def at(data: pd.DataFrame, rollouts: int, stale: int, rounding: float = 0.0, correction: str = "none") -> pd.DataFrame:
    """The rows of a condition."""
    mask = (data["rollouts"] == rollouts) & (data["stale"] == stale) & (data["rounding"] == rounding)
    return data[mask & (data["correction"] == correction)]


def _row(arm: str, data: pd.DataFrame) -> dict[str, Any]:
    def value(name: str, rollouts: int, stale: int, *sampler: Any) -> float:
        column = at(data, rollouts, stale, *sampler)[name]
        return float(column.iloc[0]) if len(column) else math.nan

    on_policy = {name: value(name, G, 0) for name in ("gain", "cosine_mean", "noise", "cosine")}
    sizes = {f"cosine_{size}": value("cosine", size, 0) for size in (2, 64)}
    lags = {f"mean_{k}": value("cosine_mean", G, k) for k in (4, 16)}
    lags |= {f"one_{k}": value("cosine", G, k) for k in (4, 16)}
    sampler = {
        name: value("cosine_mean", G, 0, ROUNDING, correction)
        for name, correction in zip(("rounded", "by_token", "by_sequence"), CORRECTIONS, strict=True)
    }
    return {"arm": arm, **on_policy, **sizes, **lags, **sampler}


def figure(data: pd.DataFrame) -> Figure:
    """A line per arm, sorted by the cosine of a single estimate on-policy; a panel per number of stale steps."""
    order = at(data, G, 0).sort_values("cosine")["arm"].tolist()
    order = [arm for arm in dict.fromkeys(data["arm"]) if arm not in order] + order
    row_of: Mapping[str, int] = {arm: number for number, arm in enumerate(order)}
    with base.drawing():
        titles = {0: "on-policy", 4: "k = 4", 16: "k = 16"}
        figure, panels = base.canvas(
            1, len(titles), width=base.PAGE, height=0.7 + LINE * len(order), sharex=True, sharey=True
        )
        for axes, (stale, title) in zip(panels, titles.items(), strict=True):
            _panel(axes, data, stale, row_of)
            axes.set_title(title)
        panels[0].set_yticks(range(len(order)), order, fontsize=6)
        panels[0].set_ylim(-0.7, len(order) - 0.3)
        panels[1].set_xlabel("cosine with the exact gradient")
        base.legend(figure)
    return figure


def _panel(axes: Axes, data: pd.DataFrame, stale: int, row_of: Mapping[str, int]) -> None:
    for label, column, rollouts, color, marker in SERIES:
        rows = at(data, rollouts, stale)
        y = [row_of[arm] for arm in rows["arm"]]
        axes.plot(rows[column], y, linestyle="", marker=marker, color=color, markersize=2.8, label=label)
    axes.set_xticks([-0.5, 0, 0.5, 1])
    axes.axvline(0, color=base.GREY, linewidth=0.5)
    axes.tick_params(axis="y", length=0)
