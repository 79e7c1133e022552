"""Transitions of prompts between classes from one roll of the panel to the next."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.probes.base import CLASSES

SUITE = "table2"
TITLE = "Transitions between the classes of prompts"
NAMES = [name.removesuffix("_correct").replace("_", " ") for name in CLASSES]


def build(data: Mapping[str, Runs]) -> Product:
    """One row per run and pair of classes: `share` of the `pairs` of rolls that begin in class `before`."""
    runs = data[SUITE]
    keys = [*base.KEYS, "run_id", "before", "pairs"]
    rows = runs.findings("transitions", "transitions", partial=True).reindex(columns=[*keys, *CLASSES])
    frame = rows.melt(keys, var_name="after", value_name="share").dropna(subset="share").reset_index(drop=True)
    if frame.empty:
        return base.nothing(TITLE, runs, "two rolls of a panel", frame)
    figure = base.grid(frame, "arm", _draw, height=2.1, widest=1.9)
    every = runs.cells[0].spec.probe.panel_every
    notes = [
        f"A pair is a roll of the panel and the next roll, {every} global steps later, over the whole of training.",
        "Shares are pooled over the pairs of all seeds; numbers on the right count the pairs that begin in the class. "
        "All wrong: p = 0; minority: 0 < p <= 0.5; majority: 0.5 < p < 1; mastered: p = 1.",
        *base.left_out(frame, runs, "two rolls of a panel"),
    ]
    sentence = _sentence(frame, runs.findings("transitions", partial=True))
    return Product(base.titled(TITLE, runs), sentence, frame, notes=notes, figure=figure)


def _draw(axes: Axes, here: pd.DataFrame) -> None:
    counts = here.assign(count=here["share"] * here["pairs"]).pivot_table(
        index="before", columns="after", values="count", aggfunc="sum"
    )
    counts_BA = counts.reindex(index=CLASSES, columns=CLASSES).to_numpy()
    pairs_B = counts_BA.sum(axis=1)
    share_BA = counts_BA / pairs_B[:, None]
    axes.imshow(share_BA, cmap="cividis", vmin=0, vmax=1)
    for (before, after), share in np.ndenumerate(share_BA):
        if not np.isnan(share):
            color = "white" if share < 0.5 else "black"
            axes.text(after, before, f"{100 * share:.0f}", ha="center", va="center", fontsize=6.5, color=color)
    for before, pairs in enumerate(np.nan_to_num(pairs_B)):
        axes.text(len(CLASSES) - 0.4, before, f"{pairs:.0f}", va="center", fontsize=5.5, color=base.GREY)
    axes.set_xticks(range(len(CLASSES)), NAMES, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(CLASSES)), NAMES)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set(xlabel="next roll (%)", ylabel="roll")


def _sentence(frame: pd.DataFrame, values: pd.DataFrame) -> str:
    """Shares of mastered and all-wrong prompts that keep their class, and of mastered ones under the same policy."""
    stays = frame[frame["before"] == frame["after"]]
    values = values.reindex(columns=[*base.KEYS, "lost_by_chance"])
    parts = []
    for (model, arm), rows in stays.groupby(["model", "arm"], sort=False):
        kept, wrong = (100 * rows.loc[rows["before"] == name, "share"] for name in ("mastered", "all_wrong"))
        chance = values.loc[(values["model"] == model) & (values["arm"] == arm), "lost_by_chance"]
        again = base.spread(100 - 100 * chance, " %")
        parts.append(
            f"{base.spread(kept, ' %')} of the mastered prompts (if rolled again under the same policy: {again}) and "
            f"{base.spread(wrong, ' %')} of the all-wrong prompts under {arm} ({model})"
        )
    return f"The class stays the same at the next roll of the panel for {'; '.join(parts)} ({base.averaged(frame)})."


ARTIFACT = Artifact("transitions", TITLE, "beyond", (SUITE,), build)
