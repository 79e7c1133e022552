"""Accuracy of every prompt of the panel over training: shows which prompts are learned, kept and forgotten."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import PAIR, Runs
from mcpo_cli.analysis.product import Artifact, Product

SUITE = "table2"
TITLE = "Trajectories of prompts"
COLORS = "cividis"
PLACE = ["prompt", "copy"]
"""Columns that identify a row of the panel, which may hold a prompt twice."""


def build(data: Mapping[str, Runs]) -> Product:
    """One row per roll of a prompt of the panel, first pair of seeds only; `row` is its place under all arms."""
    runs = data[SUITE]
    rows = runs.findings("transitions", "trajectories", partial=True)
    rows = rows.reindex(columns=[*base.KEYS, "run_id", "prompt", "step", "p"])
    frame = next((here for _, here in rows.groupby(PAIR)), rows)
    if frame.empty:
        return base.nothing(TITLE, runs, "rolls of a panel", frame)
    frame = frame.assign(copy=frame.groupby(["run_id", "prompt", "step"]).cumcount())
    frame = _sorted(frame)
    figure = base.grid(frame, "arm", _draw, height=2.4)
    with base.drawing():
        scale = ScalarMappable(Normalize(0, 1), COLORS)
        figure.colorbar(scale, ax=figure.axes, label="rollout accuracy", shrink=0.8)
    notes = [
        "The panel consists of the first prompts of the training stream, rolled again every "
        f"{runs.cells[0].spec.probe.panel_every} global steps.",
        f"Only {_seeds(frame)} is shown. Each line is a prompt, in the same place under every arm of a "
        "model; lines are sorted by accuracy at the first roll, then by mean accuracy over all rolls and arms.",
        "Chance alone makes a prompt with a true accuracy slightly below 1 fail at some rolls: see survival.",
        *base.left_out(rows, runs, "rolls of a panel"),
    ]
    return Product(base.titled(TITLE, runs), _sentence(frame), frame, notes=notes, figure=figure)


def _sorted(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the column `row`, which numbers the prompts of a model from the hardest at the first roll."""
    first = frame[frame["step"] == frame.groupby("run_id")["step"].transform("min")]
    keys = ["model", *PLACE]
    order = pd.DataFrame({"first": first.groupby(keys)["p"].mean(), "mean": frame.groupby(keys)["p"].mean()})
    order = order.reset_index().sort_values(["model", "first", "mean", *PLACE], kind="stable")
    order["row"] = order.groupby("model").cumcount()
    return frame.merge(order[[*keys, "row"]], on=keys)


def _draw(axes: Axes, here: pd.DataFrame) -> None:
    table = here.pivot(index="row", columns="step", values="p")
    axes.imshow(table, aspect="auto", cmap=COLORS, vmin=0, vmax=1, interpolation="nearest")
    shown = range(0, table.shape[1], -(-table.shape[1] // 4))
    axes.set_xticks(shown, [str(table.columns[place]) for place in shown])
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.set(xlabel="global step", ylabel="prompt of the panel")


def _sentence(frame: pd.DataFrame) -> str:
    parts = []
    for (model, arm), rows in frame.groupby(["model", "arm"], sort=False):
        ends = (rows["step"].min(), rows["step"].max())
        first, last = (set(rows.loc[(rows["step"] == step) & (rows["p"] == 1), "row"]) for step in ends)
        parts.append(f"{len(first)}, then {len(last)} ({len(first & last)} of them both times) under {arm} ({model})")
    span = f"all right at the first roll (step {frame['step'].min()}) and at the last (step {frame['step'].max()})"
    prompts = frame["row"].max() + 1
    return f"Of the {prompts} prompts of the panel, {span}: {', '.join(parts)}; {_seeds(frame)}."


def _seeds(frame: pd.DataFrame) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {frame[name].iloc[0]}" for name in PAIR)


ARTIFACT = Artifact("trajectories", TITLE, "beyond", (SUITE,), build)
