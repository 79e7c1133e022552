"""Figures 2b and 7: mastered prompts rolled again, under the next policy and, as the control, under the same one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product

NEXT, SAME, GAP, ESTIMATE = "accuracy_lag_1", "same_policy", "gap_lag_1", "selection_estimate"
PROBE = "mastery"
NOTES = (
    "Prompts with all rollouts right in the batch of a step, before any filter, are rolled again: under the policy "
    "that they were picked under (the control) and under the next step's.",
    "The control is below 100 % as prompts are picked for their score. What training changes is the gap: control minus "
    "next policy, of the prompts that have both.",
    "Bands are those of the next policy and of the gap. In the sentence each prompt counts once a cohort; in the "
    "picture each step is the mean over its cohort.",
)
ESTIMATED = (
    "Selection estimate: P_G / (P_G + P_(G-1) / G) with the shares of groups with all and all but one of G rollouts "
    "right: what the control should be, without rolling anything again."
)


@dataclass(frozen=True)
class _Drawing:
    """Which curves there are. published: the paper's value for the next policy."""

    estimate: bool
    published: float | None

    def accuracy(self, axes: Axes, here: pd.DataFrame) -> None:
        """Under both policies; dashes say which, colours and markers the arm."""
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
    axes.set(xlabel="global step that they were mastered in", ylabel="same \N{MINUS SIGN} next (points)")


def next_step_figure(
    name: str, title: str, suite: str, *, estimate: bool = False, published: float | None = None
) -> Artifact:
    """The artifact of the runs of `suite`. estimate: draw what selection alone should do, too."""
    drawing = _Drawing(estimate, published)

    def build(data: Mapping[str, Runs]) -> Product:
        runs = data[suite]
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
    """Of each arm: the two accuracies and what is between them."""
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
            f"{then} under the next policy and {same} under the same one{expected}, {gap} apart ({arm}, {model})"
        )
    return f"Rolled again, prompts that were just mastered score {'; '.join(parts)}; {base.seeds(values)}."


FALLS_TO: float = base.published("figure2b")["falls_to"]
ARTIFACTS = (
    next_step_figure("fig2b", "Mastered prompts rolled again under DAPO", "mastery", estimate=True, published=FALLS_TO),
    next_step_figure("fig7", "Mastered prompts rolled again", "table1"),
)
