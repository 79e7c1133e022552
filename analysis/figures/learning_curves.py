"""Held-out accuracy over training: pass@1 of each tier and arm at every evaluation, by steps and by rollouts."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis import equal_cost
from mcpo_cli.analysis.equal_cost import AXES, UNITS
from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import PAIR, Runs
from mcpo_cli.analysis.product import Artifact, Product

SUITE = "table2"
TITLE = "Learning curves"
STEPS, ROLLOUTS = "steps", "rollouts"


def build(data: Mapping[str, Runs]) -> Product:
    """One row per run, tier and evaluation: the mean pass@1 of its problems, and the rollouts sampled by then."""
    runs = data[SUITE]
    sizes = runs.eval(step="all").groupby(["run_id", "tier", "step"], as_index=False).agg(problems=("n", "size"))
    scores = runs.scores().merge(sizes, on=["run_id", "tier", "step"])
    frame = scores.rename(columns={"pass@1": "pass_at_1", AXES[ROLLOUTS]: ROLLOUTS})
    frame = frame[[*base.KEYS, "run_id", "tier", "step", ROLLOUTS, "pass_at_1", "problems"]]
    figure = base.grid(_panels(scores), "panel", _draw, sharey=False)
    notes = [
        base.band_note(frame),
        "Step 0 is the base policy; all arms of a seed start from it. Curves by rollouts end where the first run ends.",
    ]
    return Product(base.titled(TITLE, runs), _sentence(frame), frame, notes=notes, figure=figure)


def _panels(scores: pd.DataFrame) -> pd.DataFrame:
    """The points of all curves, a panel for each tier and axis; by rollouts only where all runs recorded them."""
    by_steps = scores.rename(columns={"step": "x", "pass@1": "value"}).assign(at=STEPS)
    blocks = [by_steps[[*base.KEYS, "tier", "at", "x", "value"]]]
    if not scores[AXES[ROLLOUTS]].isna().any():
        tiers = scores.groupby("tier", sort=False)
        blocks += [equal_cost.curves(ROLLOUTS, rows, "pass@1").assign(tier=tier) for tier, rows in tiers]
    points = pd.concat(blocks, ignore_index=True)
    return points.assign(panel=points["tier"] + ", by " + points["at"])


def _draw(axes: Axes, here: pd.DataFrame) -> None:
    base.curves(axes, here, "value", "x", points=True)
    base.percent(axes)
    base.whole(axes)
    axes.set(xlabel=UNITS[here["at"].iloc[0]], ylabel="held-out pass@1")


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
