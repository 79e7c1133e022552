"""Gradient norms of the whole update over training, and of single prompts by their class."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import PAIR, Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.probes.base import CLASSES, class_of

SUITE = "table2"
TITLE = "Gradient norms"
METRIC, PROMPT = "train/grad_norm", "single prompts"
UPDATE = "update"
QUANTILES = {0.1: "decile_1", 0.25: "quartile_1", 0.5: "median", 0.75: "quartile_3", 0.9: "decile_9"}
SPREAD = 0.7
"""Width of one class's arms as a share of the distance between classes."""


def build(data: Mapping[str, Runs]) -> Product:
    """Rows of two kinds (`panel`): gradient norm of a run at a step; quantiles over a run's prompts of one class."""
    runs = data[SUITE]
    steps = runs.steps().reindex(columns=[*base.KEYS, "run_id", "step", METRIC]).rename(columns={METRIC: "norm"})
    steps = steps.dropna(subset="norm").assign(panel=UPDATE)
    frame = pd.concat([steps, _classes(runs.rows("gradients")).assign(panel=PROMPT)], ignore_index=True)
    if frame.empty:
        return base.nothing(TITLE, runs, "gradient norm", frame)
    figure = base.grid(frame, "panel", _draw, sharey=False)
    return Product(base.titled(TITLE, runs), _sentence(frame), frame, notes=_notes(runs, frame), figure=figure)


def _classes(rows: pd.DataFrame) -> pd.DataFrame:
    """Quantiles of gradient norms over the prompts of each run and class, and the number of `prompts`."""
    rows = rows.assign(place=[CLASSES.index(class_of(p)) for p in rows["p"]])
    groups = rows.groupby([*base.KEYS, "run_id", "place"], sort=False)["norm"]
    quantiles = groups.quantile(np.array([*QUANTILES])).unstack().rename(columns=QUANTILES)
    table = quantiles.assign(prompts=groups.size()).reset_index()
    return table.assign(prompt_class=[CLASSES[place] for place in table.pop("place")])


def _draw(axes: Axes, here: pd.DataFrame) -> None:
    if here["panel"].iloc[0] == UPDATE:
        base.curves(axes, here, "norm")
        base.whole(axes)
        axes.set(xlabel="global step", ylabel="gradient norm")
    else:
        _draw_classes(axes, here)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if here["panel"].iloc[0] == UPDATE else (1,)))
    axes.yaxis.set_major_formatter(lambda norm, _: f"{norm:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _draw_classes(axes: Axes, here: pd.DataFrame) -> None:
    """Per class and arm: a line from the first to the last decile, a thick line over the middle half, the median."""
    classes = [name for name in CLASSES if name in set(here["prompt_class"])]
    looks = base.looks(here["arm"].unique().tolist())
    for number, (arm, look) in enumerate(looks.items()):
        x = np.arange(len(classes)) + SPREAD * ((number + 0.5) / len(looks) - 0.5)
        mean = here[here["arm"] == arm].groupby("prompt_class")[[*QUANTILES.values()]].mean().reindex(classes)
        axes.vlines(x, mean["decile_1"], mean["decile_9"], color=look.color, linewidth=0.8)
        axes.vlines(x, mean["quartile_1"], mean["quartile_3"], color=look.color, linewidth=2.4, alpha=0.5)
        axes.plot(x, mean["median"], color=look.color, linestyle="none", marker=look.marker, markersize=3)
    axes.set_xticks(range(len(classes)), [name.removesuffix("_correct") for name in classes])
    axes.set_xlabel("class of the prompt")
    axes.grid(visible=False, axis="x")


def _sentence(frame: pd.DataFrame) -> str:
    parts = []
    for model, here in frame.groupby("model", sort=False):
        arms = [
            f"{base.spread(rows.groupby(PAIR)['norm'].mean(), digits=2)} under {arm}"
            for arm, rows in here.groupby("arm", sort=False)
        ]
        classes = [
            f"{base.spread(rows['median'], digits=2)} for {str(name).replace('_', ' ')} prompts"
            for name, rows in here.groupby("prompt_class", sort=False)
        ]
        parts.append(
            f"{model} {', '.join(arms)}; median over single prompts of a run: {', '.join(classes) or 'not measured'}"
        )
    return f"Gradient norm of the updates, mean over steps: {'; '.join(parts)} ({base.averaged(frame)})."


def _notes(runs: Runs, frame: pd.DataFrame) -> list[str]:
    measured = frame[frame["panel"] == PROMPT]
    if measured.empty:
        return [base.band_note(frame), "No run recorded gradients of single prompts."]
    classes = measured.groupby("prompt_class", sort=False)["prompts"].sum().astype(int)
    return [
        base.band_note(frame),
        "Left: norm before clipping, mean over the gradient steps of a global step.",
        "Right: marker: median; thick line: middle half; thin line: first to last decile; over a run's measured "
        "prompts of all steps, then mean over seeds. Prompts with 0 < p < 1: gradient of their own policy loss; "
        "mastered prompts: gradient of their likelihood, which is not part of the loss.",
        "Measured prompts: " + ", ".join(f"{count} {name}" for name, count in classes.items()) + ".",
        *base.left_out(measured, runs, "gradients of single prompts"),
    ]


ARTIFACT = Artifact("gradients", TITLE, "beyond", (SUITE,), build)
