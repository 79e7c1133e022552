"""Activity of the hinge over training, and over the mini-batches of a global step."""

import math
from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product

SUITE = "table2"
TITLE = "Activity of the hinge"
WHAT = "activity of a hinge"
QUANTITIES = {"prompts_felt": "prompts", "tokens_active": "tokens"}
"""Column of the probe's table (and metric of the steps, after `hinge/`) -> what it is a share of."""
VALUES = ("prompts_felt", "switched_on", "switched_off", "variance_policy", "variance_added")
"""Values of the probe."""
STEP, MINI_BATCH = "global step", "mini-batch"
SPAN = {STEP: "in training", MINI_BATCH: "in a step"}
MOST = 16
"""Most points of a curve over global steps: single steps vary so much that the arms' bands would hide each other."""


def build(data: Mapping[str, Runs]) -> Product:
    """One row per run, quantity and place: share of mastered prompts, or of their tokens, outside the drift budget.

    A place is a global step, or a mini-batch within a global step (mean over the steps).
    """
    runs = data[SUITE]
    values = runs.findings("hinge", partial=True)
    values = values.reindex(columns=[*base.KEYS, *VALUES])
    steps = runs.steps().rename(columns={f"hinge/{name}": name for name in QUANTITIES} | {"step": "place"})
    within = runs.findings("hinge", "mini_batches", partial=True).rename(columns={"mini_batch": "place"})
    frame = pd.concat([_tidy(steps, STEP), _tidy(within, MINI_BATCH)], ignore_index=True)
    if frame.empty:
        return base.nothing(TITLE, runs, WHAT, frame)
    figure = base.grid(frame, "panel", _draw, sharey=False)
    return Product(base.titled(TITLE, runs), _sentence(frame, values), frame, notes=_notes(runs, frame), figure=figure)


def _tidy(rows: pd.DataFrame, over: str) -> pd.DataFrame:
    keys = [*base.KEYS, "run_id", "place"]
    rows = rows.reindex(columns=[*keys, *QUANTITIES]).rename(columns=QUANTITIES)
    long = rows.melt(keys, var_name="quantity", value_name="share").dropna(subset="share")
    return long.assign(over=over, panel=long["quantity"] + f" {SPAN[over]}")


def _draw(axes: Axes, here: pd.DataFrame) -> None:
    over = here["over"].iloc[0]
    base.curves(axes, _blocks(here), "share", x="place", points=True)
    base.percent(axes)
    base.whole(axes)
    axes.set_ylim(bottom=0)
    axes.set(xlabel=over, ylabel="outside the budget")


def _blocks(here: pd.DataFrame) -> pd.DataFrame:
    """The rows of one panel as means over blocks of places, at most MOST of them, each at its middle."""
    size = _size(here)
    block = (here["place"] - 1) // size * size + (size + 1) / 2
    return here.assign(place=block).groupby([*base.KEYS, "place"], sort=False)["share"].mean().reset_index()


def _size(here: pd.DataFrame) -> int:
    """Places in a block."""
    return math.ceil(float(here["place"].max()) / MOST)


def _sentence(frame: pd.DataFrame, values: pd.DataFrame) -> str:
    parts = []
    for model, arm in frame[["model", "arm"]].drop_duplicates().itertuples(index=False):
        rows = values[(values["model"] == model) & (values["arm"] == arm)]
        share = {name: base.spread(100 * rows[name], " %") for name in VALUES}
        added = base.spread(100 * rows["variance_added"] / rows["variance_policy"], " %")
        parts.append(
            f"under {arm} ({model}) on {share['prompts_felt']} of the mastered prompts of a mini-batch, switches on in "
            f"{share['switched_on']} and off in {share['switched_off']} of the pairs of consecutive mini-batches, and "
            f"changes the variance of the loss over the mini-batches of a step by {added}"
        )
    return f"The hinge is active {'; '.join(parts)} ({base.averaged(frame)})."


def _notes(runs: Runs, frame: pd.DataFrame) -> list[str]:
    size = _size(frame[frame["over"] == STEP])
    notes = [
        base.band_note(frame),
        *([f"Over global steps, a point is the mean of {size} steps."] if size > 1 else []),
        "Prompts: share of mastered prompts with a token outside the drift budget; tokens: share of mastered prompts' "
        "tokens outside it. A prompt counts once per global step, under the weights before its gradient step.",
        *base.left_out(frame, runs, WHAT),
    ]
    first = frame[(frame["over"] == MINI_BATCH) & (frame["place"] == 1)]
    if len(first) and not first["share"].any():
        notes.append("The hinge is inactive in the first mini-batch of a step: the policy still equals its anchor.")
    return notes


ARTIFACT = Artifact("hinge", TITLE, "beyond", (SUITE,), build)
