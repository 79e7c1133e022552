"""How fast the policy learns the prompts that were hard at first."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.probes.mastery import HARD

SUITE = "table2"
TITLE = "Learning of hard prompts"
GROUPS = {"hard": f"at most {HARD:.0%} at the first roll", "all_wrong": "never right at the first roll"}
"""Column of the probe's table -> label."""
WHAT = "rolls of a panel with a hard prompt"


def build(data: Mapping[str, Runs]) -> Product:
    """One row per run, group of the panel's prompts and roll: their mean accuracy."""
    runs = data[SUITE]
    keys = [*base.KEYS, "run_id", "step"]
    rows = runs.findings("transitions", "learning", partial=True).reindex(columns=[*keys, *GROUPS])
    long = rows.rename(columns=GROUPS).melt(keys, var_name="group", value_name="accuracy")
    frame = long.dropna(subset="accuracy").reset_index(drop=True)
    if frame.empty:
        return base.nothing(TITLE, runs, WHAT, frame)
    figure = base.grid(frame, "group", _draw)
    every = runs.cells[0].spec.probe.panel_every
    notes = [
        base.band_note(frame),
        f"Prompts of the panel, rolled again every {every} global steps. The first roll selected them, so its accuracy "
        "is biased low: progress shows from the second roll on.",
        *base.left_out(frame, runs, WHAT),
    ]
    sentence = _sentence(frame, runs.findings("transitions", partial=True))
    return Product(base.titled(TITLE, runs), sentence, frame, notes=notes, figure=figure)


def _draw(axes: Axes, here: pd.DataFrame) -> None:
    base.curves(axes, here, "accuracy", points=True)
    base.percent(axes)
    base.whole(axes)
    axes.set(xlabel="global step", ylabel="rollout accuracy")
    axes.set_ylim(bottom=0, auto=True)


def _sentence(frame: pd.DataFrame, values: pd.DataFrame) -> str:
    values = values.reindex(columns=[*base.KEYS, "hard_prompts", "hard_gain"])
    parts = []
    for (model, arm), rows in values.dropna(subset="hard_prompts").groupby(["model", "arm"], sort=False):
        gain = base.spread(100 * rows["hard_gain"])
        parts.append(f"{gain} points under {arm} ({model}, {rows['hard_prompts'].sum():.0f} prompts in all)")
    return (
        "Gain in accuracy from the panel's second roll to its last, for prompts with at most "
        f"{100 * HARD:.0f} % at the first: {'; '.join(parts)} ({base.averaged(frame)})."
    )


ARTIFACT = Artifact("hard-prompts", TITLE, "beyond", (SUITE,), build)
