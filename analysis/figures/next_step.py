"""Figures 2b and 7: mastered prompts rolled again under the next policy and, as a control, under the same policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product

UNFILTERED = "DAPO w/o filter"
NEXT, SAME, GAP, ESTIMATE = "accuracy_lag_1", "same_policy", "gap_lag_1", "selection_estimate"
PROBE = "mastery"
NOTES = (
    "Prompts whose rollouts in a step are all right, before any filter, are rolled again: under the policy of that "
    "step (the control) and under the policy of the next step.",
    "The control is below 100 % because prompts were selected by their score. Training changes the gap: control minus "
    "next policy, for prompts that have both.",
    "Bands belong to the next policy and to the gap. In the sentence each prompt counts once per step in which it was "
    "mastered; in the figure each step is the mean over its prompts.",
)
ESTIMATED = (
    "Selection estimate: P_G / (P_G + P_(G-1) / G), where P_G and P_(G-1) are the shares of groups with G and G-1 of G "
    "rollouts right. It predicts the control without rolling prompts again."
)


@dataclass(frozen=True)
class _Drawing:
    """Which curves to draw."""

    estimate: bool
    """Whether to draw the selection estimate."""
    published: float | None
    """The paper's value for the next policy."""

    def accuracy(self, axes: Axes, here: pd.DataFrame) -> None:
        """Draw accuracy under both policies: line styles show the policy, colours and markers show the arm."""
        base.curves(axes, here, NEXT, linestyle="-")
        axes.plot([], [], color=base.GREY, label="next policy")
        thin: dict[str, Any] = {"marker": "", "linewidth": 1.1}
        lines = {SAME: ("same policy", (0, (3, 1))), ESTIMATE: ("selection estimate", (0, (3, 1, 1, 1)))}
        for name, (words, dashes) in lines.items():
            if name == SAME or self.estimate:
                base.curves(axes, here, name, band=False, label="_", linestyle=dashes, **thin)
                axes.plot([], [], color=base.GREY, label=words, linestyle=dashes, **thin)
        if self.published is not None:
            base.reference(axes, self.published, f"paper: about {self.published:.0%}")
        base.percent(axes)
        axes.set_ylabel("accuracy")


def _gap(axes: Axes, here: pd.DataFrame) -> None:
    axes.axhline(0, color=base.GREY, linewidth=0.6)
    base.curves(axes, here, GAP, linestyle="-")
    base.points(axes)
    base.whole(axes)
    axes.set(xlabel="global step in which prompts were mastered", ylabel="same \N{MINUS SIGN} next (points)")


def next_step_figure(
    name: str,
    title: str,
    suite: str,
    arms: Sequence[str],
    *,
    estimate: bool = False,
    published: float | None = None,
) -> Artifact:
    """The artifact for `arms` of `suite`. estimate: also draw the effect expected from selection alone."""
    drawing = _Drawing(estimate, published)

    def build(data: Mapping[str, Runs]) -> Product:
        runs = data[suite].of(arms)
        shown = [SAME, NEXT, GAP, *([ESTIMATE] if estimate else [])]
        columns = [*base.KEYS, "run_id", "step", "prompts", *shown]
        frame = runs.findings(PROBE, "steps", partial=True).reindex(columns=columns)
        frame = frame.dropna(subset=SAME).reset_index(drop=True)
        if frame.empty:
            return base.nothing(title, runs, "mastered prompts that were rolled again", frame)
        values = runs.findings(PROBE, partial=True)
        figure = base.panels(frame, drawing.accuracy, _gap, height=1.7)
        notes = [base.band_note(frame), *NOTES, *([ESTIMATED] if estimate else [])]
        notes += base.left_out(frame, runs, "mastered prompts that were rolled again")
        return Product(base.titled(title, runs), _sentence(values, estimate), frame, notes=notes, figure=figure)

    return Artifact(name, title, "paper", (suite,), build, f"Figure {name.removeprefix('fig')}")


def _sentence(values: pd.DataFrame, estimate: bool) -> str:
    """The two accuracies of each arm and the gap between them."""
    bounds = [f"{GAP}_low", f"{GAP}_high"]
    values = values.reindex(columns=[*base.KEYS, SAME, NEXT, GAP, ESTIMATE, *bounds]).dropna(subset=SAME)
    parts = []
    for (model, arm), rows in values.groupby(["model", "arm"], sort=False):
        same, then, chance = (base.spread(100 * rows[name], " %", digits=2) for name in (SAME, NEXT, ESTIMATE))
        gap = base.spread(100 * rows[GAP], " points", digits=2)
        if len(rows) == 1 and rows[bounds].notna().all(axis=None):
            low, high = 100 * rows[bounds].iloc[0]
            gap += f" (95 % interval over its steps {low:.2f} to {high:.2f})"
        expected = f" (selection estimate: {chance})" if estimate else ""
        parts.append(
            f"{then} under the next policy and {same} under the same policy{expected}, {gap} apart ({arm}, {model})"
        )
    return f"Just mastered prompts that are rolled again score {'; '.join(parts)}; {base.averaged(values)}."


FALLS_TO: float = base.published("figure2b")["falls_to"]
ARTIFACTS = (
    next_step_figure(
        *("fig2b", "Mastered prompts rolled again under DAPO", "mastery", (UNFILTERED,)),
        estimate=True,
        published=FALLS_TO,
    ),
    # Both without the filter, as in Section 4.1: of DAPO with it, other prompts and more of them are mastered.
    next_step_figure("fig7", "Mastered prompts rolled again", "table2", (UNFILTERED, "MCPO")),
)
