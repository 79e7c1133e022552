"""Figures 2b, 3a and 7: accuracy of sampled prompts, and of mastered ones resampled under the same or next policy."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.measures.frames import Runs
from mcpo_cli.render.figures import base
from mcpo_cli.render.figures.base import KEYS
from mcpo_cli.render.product import Artifact

from .. import published
from ..sections import PAPER, place
from .curves import LATE
from .declare import FigureContent, Quantity, caption, figure

UNFILTERED = "DAPO w/o filter"
NEXT, SAME, GAP, ESTIMATE = "accuracy_lag_1", "same_policy", "gap_lag_1", "selection_estimate"
RESAMPLED = "mastered prompts that were resampled"
NOTES = (
    "Prompts whose rollouts in a step are all correct, before any filter, are resampled: under the policy of that "
    "step (the control) and under the policy of the next step.",
    "The control is below 100 % because prompts were selected by their score. Training changes the gap: control minus "
    "next policy, for prompts that have both.",
    "Bands belong to the next policy and to the gap. In the caption each prompt counts once per step in which it was "
    "mastered; in the figure each step is the mean over its prompts.",
)
ESTIMATED = (
    "Selection estimate: P_G / (P_G + P_(G-1) / G), where P_G and P_(G-1) are the shares of groups with G and G-1 of G "
    "correct rollouts. It predicts the control without resampling."
)


def _next_step(
    name: str, title: str, suite: str, arms: tuple[str, ...], *, estimate: bool = False, paper: float | None = None
) -> Artifact:
    """Accuracy of just mastered prompts under both policies, and the gap.

    estimate: also draw the effect expected from selection alone. paper: its value for the next policy.
    """
    columns = {NEXT: "under the next policy", SAME: "under the same policy"}
    columns |= {ESTIMATE: "expected from selection alone"} if estimate else {}

    def draw(axes: Axes, rows: pd.DataFrame) -> None:
        """Line styles show the policy; colours and markers show the arm."""
        base.curves(axes, rows, NEXT, linestyle="-")
        axes.plot([], [], color=base.GREY, label="next policy")
        thin: dict[str, Any] = {"marker": "", "linewidth": 1.1}
        dashes = {SAME: ("same policy", (0, (3, 1))), ESTIMATE: ("selection estimate", (0, (3, 1, 1, 1)))}
        for column, (label, dash) in dashes.items():
            if column in columns:
                base.curves(axes, rows, column, band=False, label="_", linestyle=dash, **thin)
                axes.plot([], [], color=base.GREY, label=label, linestyle=dash, **thin)
        if paper is not None:
            base.reference(axes, paper, f"paper: about {paper:g}")
        axes.set_ylabel("accuracy (share)")

    @figure(
        name, title, suite, draw, _draw_gap,
        what=RESAMPLED, section=PAPER, place=place(name), arms=arms, height=1.7,
    )  # fmt: skip
    def artifact(runs: Runs) -> FigureContent:
        names = [*KEYS, "run_id", "step", "prompts", SAME, NEXT, GAP, *([ESTIMATE] if estimate else [])]
        rows = runs.findings("mastery", "steps", partial=True).reindex(columns=names).dropna(subset=SAME)
        values = runs.findings("mastery", partial=True).reindex(columns=[*KEYS, SAME, NEXT, GAP, ESTIMATE])
        values = values.dropna(subset=SAME).set_index(KEYS)
        means = [Quantity(name, values[column]) for column, name in columns.items()]
        sentence = caption("Accuracy of just mastered prompts", *means, Quantity("the gap", values[GAP]))
        return FigureContent(rows.reset_index(drop=True), sentence, (*NOTES, *([ESTIMATED] if estimate else [])))

    return artifact


def _draw_gap(axes: Axes, rows: pd.DataFrame) -> None:
    axes.axhline(0, color=base.GREY, linewidth=0.6)
    base.curves(axes, rows, GAP, linestyle="-")
    base.integer_ticks(axes)
    axes.set(xlabel="global step in which prompts were mastered", ylabel="same \N{MINUS SIGN} next (share)")


ALL, FIRST, LAST = "all steps", "first step", "last quarter"
PARTS_OF_P = {"at_0": "at p = 0", "middle": "at 1/3 <= p <= 2/3", "at_1": "at p = 1"}
"""Value of the probe -> words of the caption."""


def _draw_accuracy(axes: Axes, rows: pd.DataFrame) -> None:
    bins = rows["p"].nunique()
    ((_, look),) = base.looks(rows["arm"].unique().tolist()).items()
    share = rows[rows["part"] == ALL].groupby("p")["share"]
    mean = share.mean()
    axes.bar(mean.index, mean, 0.85 / (bins - 1), color=look.color, alpha=0.55, label=ALL)
    axes.vlines(mean.index, share.min(), share.max(), color="black", linewidth=0.7)
    for part, marker in ((FIRST, "o"), (LAST, "s")):
        line = rows[rows["part"] == part].groupby("p")["share"].mean()
        fill = "white" if part == FIRST else "black"
        axes.plot(line.index, line, marker, markersize=3, color="black", markerfacecolor=fill, label=part)
    base.reference(axes, 1 / bins, "uniform")
    axes.set(xlabel="rollout accuracy p", ylabel="share of prompts")


@figure(
    "fig3a", "Rollout accuracy of training prompts", "mastery", _draw_accuracy,
    what="prompt groups", section=PAPER, place=place("fig3a"), by="arm", band=False, height=2.1,
)  # fmt: skip
def accuracy(runs: Runs) -> FigureContent:
    """One row per run, part of training and accuracy p: the share of sampled prompts with that accuracy."""
    columns = [*KEYS, "run_id", "part", "p", "share"]
    steps = runs.findings("histogram", "steps", partial=True).reindex(columns=[*columns, "step"])
    first = steps[steps["step"] == steps["step"].min()].assign(part=FIRST)
    last = steps[steps["step"] > LATE * steps["step"].max()].assign(part=LAST)
    last = last.groupby([*KEYS, "run_id", "part", "p"], sort=False, as_index=False)["share"].mean()
    all_steps = runs.findings("histogram", "bins", partial=True).assign(part=ALL)
    rows = pd.concat([all_steps, first, last], ignore_index=True).reindex(columns=columns)
    values, p = runs.findings("histogram", partial=True), rows["p"].drop_duplicates()
    values = values.reindex(columns=[*KEYS, *PARTS_OF_P]).set_index(KEYS)
    sentence = caption("Share of sampled prompts", *(Quantity(at, values[name]) for name, at in PARTS_OF_P.items()))
    notes = [
        "Share of the sampled prompts with k of G correct rollouts, before any filter; a prompt counts each time it is "
        "sampled. Bars: all steps, mean over seeds, with the lowest and the highest seed. The base policy samples the "
        "first step.",
        f"Uniform: if all numbers of correct rollouts were equally frequent, each would have a share of "
        f"{1 / max(1, len(p)):.3f} of the prompts, and {p.between(1 / 3, 2 / 3).mean():.3f} would have "
        "1/3 <= p <= 2/3.",
    ]
    return FigureContent(rows, sentence, notes)


ARTIFACTS = (
    _next_step(
        "fig2b", "Mastered prompts resampled under DAPO", "mastery", (UNFILTERED,),
        estimate=True, paper=published.figure("figure2b")["falls_to"],
    ),
    # Neither arm has the filter, as in Section 4.1: under DAPO with it, other and more prompts are mastered.
    _next_step("fig7", "Mastered prompts resampled", "table2", (UNFILTERED, "MCPO")),
    accuracy,
)  # fmt: skip
