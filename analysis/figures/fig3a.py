"""Figure 3a of the paper: how often k of a prompt's G rollouts are right."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.figures.metric import LATE
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product

SUITE, PROBE = "mastery", "histogram"
TITLE = "Rollout accuracy of training prompts"
ALL, FIRST, LAST = "all steps", "first step", "last quarter"
NOTES = (
    "Share of the sampled prompts with k of G right rollouts, before any filter; a prompt counts each time it is "
    "sampled. Bars: all steps, mean over seeds, with the lowest and the highest seed. The base policy samples the "
    "first step.",
    "Uniform: height of each bar if all numbers of right rollouts were equally frequent.",
)


def build(data: Mapping[str, Runs]) -> Product:
    """One row per run, part of training and accuracy p: the share of sampled prompts with that accuracy."""
    runs = data[SUITE]
    columns = [*base.KEYS, "run_id", "part", "p", "share"]
    steps = runs.findings(PROBE, "steps", partial=True).reindex(columns=[*columns, "step"])
    whole = runs.findings(PROBE, "bins", partial=True).assign(part=ALL).reindex(columns=columns)
    if whole.empty:
        return base.nothing(TITLE, runs, "prompt groups", whole)
    first = steps[steps["step"] == steps["step"].min()].assign(part=FIRST)
    late = steps[steps["step"] > LATE * steps["step"].max()].assign(part=LAST)
    late = late.groupby([*base.KEYS, "run_id", "part", "p"], sort=False, as_index=False)["share"].mean()
    frame = pd.concat([whole, first, late], ignore_index=True)[columns]
    figure = base.grid(frame, "arm", _draw, height=2.1)
    values = runs.findings(PROBE, partial=True)
    notes = [*NOTES, *base.left_out(frame, runs, "prompt groups")]
    return Product(base.titled(TITLE, runs), _sentence(values, frame), frame, notes=notes, figure=figure)


def _draw(axes: Axes, here: pd.DataFrame) -> None:
    bins = here["p"].nunique()
    ((_, look),) = base.looks(here["arm"].unique().tolist()).items()
    share = here[here["part"] == ALL].groupby("p")["share"]
    mean = share.mean()
    width = 0.85 / (bins - 1)
    axes.bar(mean.index, mean, width, color=look.color, alpha=0.55, label=ALL)
    axes.vlines(mean.index, share.min(), share.max(), color="black", linewidth=0.7)
    for part, marker in ((FIRST, "o"), (LAST, "s")):
        line = here[here["part"] == part].groupby("p")["share"].mean()
        fill = "white" if part == FIRST else "black"
        axes.plot(line.index, line, marker, markersize=3, color="black", markerfacecolor=fill, label=part)
    base.reference(axes, 1 / bins, "uniform")
    base.percent(axes)
    axes.set(xlabel="rollout accuracy p", ylabel="share of prompts")


def _sentence(values: pd.DataFrame, frame: pd.DataFrame) -> str:
    bins = frame["p"].nunique()
    inner = frame.loc[(frame["p"] >= 1 / 3) & (frame["p"] <= 2 / 3), "p"].nunique()
    parts = []
    for (model, arm), rows in values.groupby(["model", "arm"], sort=False):
        wrong, middle, right = (base.spread(100 * rows[name], " %") for name in ("at_0", "middle", "at_1"))
        parts.append(f"{wrong} have p = 0, {right} have p = 1 and {middle} have 1/3 <= p <= 2/3 ({arm}, {model})")
    even = f"{100 / bins:.1f} %, {100 / bins:.1f} % and {100 * inner / bins:.1f} % if every p were equally frequent"
    return f"Of the sampled prompts {'; '.join(parts)}; these would be {even}; {base.averaged(values)}."


ARTIFACT = Artifact("fig3a", TITLE, "paper", (SUITE,), build, "Figure 3a")
