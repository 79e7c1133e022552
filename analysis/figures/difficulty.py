"""Difficulty of the held-out problems: the share of samples that solve each, before and after training."""

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import PAIR, Runs
from mcpo_cli.analysis.product import Artifact, Product

SUITE = "table2"
TITLE = "Difficulty of the held-out problems"
BINS = ("never", "up to 25%", "up to 50%", "up to 75%", "below 100%", "always")
"""Bins of the share c/n of samples that solve a problem: 0, (0, .25], (.25, .5], (.5, .75], (.75, 1), 1."""
POLICY = "base policy"


def build(data: Mapping[str, Runs]) -> Product:
    """One row per run, policy (base or trained), tier and bin: the share of the tier's `problems` in that bin."""
    runs = data[SUITE]
    rows = runs.eval(step="all")
    last = rows.groupby("run_id")["step"].transform("max")
    rows = rows[((rows["step"] == 0) | (rows["step"] == last)) & (rows["n"] > 0)]
    place = np.where(rows["c"] == rows["n"], len(BINS) - 1, -(-4 * rows["c"] // rows["n"]))
    rows = rows.assign(policy=np.where(rows["step"] == 0, POLICY, "trained"))
    rows = rows.assign(**{name: place == i for i, name in enumerate(BINS)})
    groups = rows.groupby([*base.KEYS, "run_id", "policy", "tier"], sort=False)
    wide = groups[[*BINS]].mean().assign(problems=groups.size()).set_index("problems", append=True)
    frame = wide.melt(var_name="solved", value_name="share", ignore_index=False).reset_index()
    figure = base.grid(frame, "tier", _draw, height=1.9, sharex=True)
    return Product(base.titled(TITLE, runs), _sentence(frame), frame, notes=_notes(runs, rows), figure=figure)


def _draw(axes: Axes, here: pd.DataFrame) -> None:
    trained = here[here["policy"] != POLICY]
    bars = {POLICY: here[here["policy"] == POLICY]}
    bars |= {str(arm): rows for arm, rows in trained.groupby("arm", sort=False)}
    colors = mpl.colormaps["cividis"](np.linspace(0, 1, len(BINS)))
    left = np.zeros(len(bars))
    for solved, color in zip(BINS, colors, strict=True):
        width = np.array([rows.loc[rows["solved"] == solved, "share"].mean() for rows in bars.values()])
        axes.barh(range(len(bars)), width, left=left, color=color, label=solved, height=0.75)
        left += width
    axes.set_yticks(range(len(bars)), list(bars))
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set(xlim=(0, 1), xticks=(0, 0.5, 1), xlabel="share of problems")
    axes.grid(visible=False)
    base.percent(axes, "x")


def _sentence(frame: pd.DataFrame) -> str:
    """Shares of problems that no sample and every sample solves, mean over tiers."""
    mean = frame.groupby([*base.KEYS, "policy", "solved"], sort=False)["share"].mean().mul(100).reset_index()
    parts = []
    for model, here in mean.groupby("model", sort=False):
        before, trained = here[here["policy"] == POLICY], here[here["policy"] != POLICY]
        start = _ends(before.groupby([*PAIR, "solved"])["share"].mean().reset_index())
        after = [f"{_ends(rows)} under {arm}" for arm, rows in trained.groupby("arm", sort=False)]
        parts.append(f"{model} {start} under the base policy, after training {', '.join(after)}")
    return (
        f"Shares of held-out problems that no sample and that every sample solves, mean over tiers: {'; '.join(parts)} "
        f"({base.averaged(frame)})."
    )


def _ends(rows: pd.DataFrame) -> str:
    return " and ".join(base.spread(rows.loc[rows["solved"] == name, "share"], " %") for name in (BINS[0], BINS[-1]))


def _notes(runs: Runs, rows: pd.DataFrame) -> list[str]:
    sizes = rows.groupby("tier", sort=False)["problem"].nunique()
    problems = set(rows["problem"])
    trained = {row["prompt"] for cell in runs.cells for row in runs.journal(cell).rows("groups")}
    notes = [
        "Bars: mean over seeds. Colour: the share of a problem's samples that solved it.",
        "Problems: " + ", ".join(f"{count} of {tier}" for tier, count in sizes.items()) + ".",
        f"{len(problems & trained)} of {len(problems)} held-out problems were among the training prompts.",
    ]
    if rule := runs.cells[0].spec.task.held_out_rule:
        notes.append(f"No overlap is possible: {rule}.")
    return notes


ARTIFACT = Artifact("difficulty", TITLE, "beyond", (SUITE,), build)
