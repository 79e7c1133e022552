"""Figures 5a and 5b: the share of one class of prompts over training, arms compared by their means over seeds."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis import stats
from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product

SUITE = "table1"


def share_figure(name: str, place: str, metric: str, title: str, words: str) -> Artifact:
    """The artifact that draws the share `metric` of the suite table1. words: what a prompt of that class is."""

    def build(data: Mapping[str, Runs]) -> Product:
        runs = data[SUITE]
        frame = runs.steps()[[*base.KEYS, "run_id", "step", metric]].rename(columns={metric: "share"})
        figure = base.panels(frame, lambda axes, here: _draw(axes, here, f"{words} prompts"))
        notes = [base.band_note(frame), "Of the prompts that were sampled in a global step, before any filter."]
        return Product(base.titled(title, runs), _sentence(frame, words), frame, notes=notes, figure=figure)

    return Artifact(name, title, "paper", (SUITE,), build, place)


def _draw(axes: Axes, frame: pd.DataFrame, label: str) -> None:
    base.curves(axes, frame, "share")
    base.percent(axes)
    axes.set(xlabel="global step", ylabel=label)
    axes.legend()


def _sentence(frame: pd.DataFrame, words: str) -> str:
    """Means over the last quarter of training, where the arms have had time to part."""
    late = frame[frame["step"] > frame["step"].max() * 0.75]
    parts = []
    for model, here in late.groupby("model", sort=False):
        by_arm = [
            f"{100 * stats.t_interval(rows.groupby('seed')['share'].mean().to_numpy()).mean:.1f} % under {arm}"
            for arm, rows in here.groupby("arm", sort=False)
        ]
        parts.append(f"{', '.join(by_arm)} ({model})")
    return f"In the last quarter of training {'; '.join(parts)} of the prompts are {words}."
