"""Held-out accuracy over training: pass@1 of each tier and arm at every evaluation."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import PAIR, Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.statistics import stats

SUITE = "table2"
TITLE = "Learning curves"


def build(data: Mapping[str, Runs]) -> Product:
    """One row per run, tier and evaluation: the mean pass@1 of its problems."""
    runs = data[SUITE]
    rows = runs.eval(step="all")
    rows = rows.assign(pass_at_1=stats.pass_at_k(rows["n"], rows["c"], 1))
    keys = [*base.KEYS, "run_id", "tier", "step"]
    frame = rows.groupby(keys, sort=False, as_index=False).agg(
        pass_at_1=("pass_at_1", "mean"), problems=("pass_at_1", "count")
    )
    figure = base.grid(frame, "tier", _draw, sharey=False)
    notes = [base.band_note(frame), "Step 0 is the base policy; all arms of a seed start from it."]
    return Product(base.titled(TITLE, runs), _sentence(frame), frame, notes=notes, figure=figure)


def _draw(axes: Axes, here: pd.DataFrame) -> None:
    base.curves(axes, here, "pass_at_1", points=True)
    base.percent(axes)
    base.whole(axes)
    axes.set(xlabel="global step", ylabel="held-out pass@1")


def _sentence(frame: pd.DataFrame) -> str:
    """Mean pass@1 over tiers before and after training, by model."""
    mean = frame.groupby([*base.KEYS, "step"], sort=False)["pass_at_1"].mean().mul(100).reset_index()
    parts = []
    for model, here in mean.groupby("model", sort=False):
        first, last = here[here["step"] == 0], here[here["step"] == here["step"].max()]
        arms = [f"{base.spread(rows['pass_at_1'], ' %')} under {arm}" for arm, rows in last.groupby("arm", sort=False)]
        start = base.spread(first.groupby(PAIR)["pass_at_1"].mean(), " %")
        parts.append(f"{model} goes from {start} at the base policy to {', '.join(arms)} at step {last['step'].max()}")
    return f"Held-out pass@1, mean over tiers: {'; '.join(parts)} ({base.averaged(frame)})."


ARTIFACT = Artifact("learning-curves", TITLE, "beyond", (SUITE,), build)
