"""What a step takes from mastered prompts, by component of MCPO and regime: the suite `forgetting`."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.figures.next_step import GAP, PROBE, SAME
from mcpo_cli.analysis.frames import PAIR, Runs
from mcpo_cli.analysis.product import Artifact, Product

SUITE = "forgetting"
TITLE = "What a step takes from mastered prompts"
WHAT = "mastered prompts that were rolled again"
WINDOW = 5
"""Global steps that a point of the curve is the mean of."""


def build(data: Mapping[str, Runs]) -> Product:
    """One row per run and window of steps: the mean gap between the same and the next policy."""
    runs = data[SUITE]
    rows = runs.findings(PROBE, "steps", partial=True)
    rows = rows.reindex(columns=[*base.KEYS, "regime", "run_id", "step", SAME, GAP]).dropna(subset=GAP)
    if rows.empty:
        return base.nothing(TITLE, runs, WHAT, rows)
    rows["window"] = (rows["step"] - 1) // WINDOW * WINDOW + (WINDOW + 1) // 2
    keys = [*base.KEYS, "regime", "run_id", "window"]
    frame = rows.groupby(keys, sort=False)[[SAME, GAP]].mean().reset_index()
    figure = base.grid(frame, "regime", _draw, height=2.1)
    notes = [
        base.band_note(frame),
        f"Each point: mean over {WINDOW} global steps, each step counting once, of the accuracy of its mastered "
        "prompts rolled again under the same policy minus that under the next. No arm has the filter.",
        *base.left_out(frame, runs, WHAT),
    ]
    return Product(base.titled(TITLE, runs), _sentence(rows), frame, notes=notes, figure=figure)


def _draw(axes: Axes, here: pd.DataFrame) -> None:
    axes.axhline(0, color=base.GREY, linewidth=0.6)
    base.curves(axes, here, GAP, x="window", points=True)
    base.points(axes)
    base.whole(axes)
    axes.set(xlabel="global step", ylabel="same \N{MINUS SIGN} next (points)")


def _sentence(rows: pd.DataFrame) -> str:
    parts = []
    for (regime, model), here in rows.groupby(["regime", "model"], sort=False):
        arms = [
            f"{base.spread(100 * own.groupby(PAIR)[GAP].mean(), digits=2)} under {arm}"
            for arm, own in here.groupby("arm", sort=False)
        ]
        parts.append(f"{regime} ({model}) {', '.join(arms)}")
    return f"Points of accuracy that a step takes from mastered prompts: {'; '.join(parts)} ({base.averaged(rows)})."


ARTIFACT = Artifact("retention", TITLE, "diagnostic", (SUITE,), build, by_regime=True)
