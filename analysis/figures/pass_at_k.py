"""pass@k against k after training: shows whether an arm solves more problems or the same problems more often."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.statistics import stats

SUITE = "table2"
TITLE = "pass@k after training"


def build(data: Mapping[str, Runs]) -> Product:
    """One row per run, tier and k: means over problems of pass@k (unbiased) and best@k (which the paper reports)."""
    runs = data[SUITE]
    rows = runs.eval()
    fewest, most = int(rows["n"].min()), int(rows["n"].max())
    scored = [_scored(rows, k) for k in range(1, fewest + 1)]
    if not scored:
        return base.nothing(TITLE, runs, "a graded sample of every held-out problem", _scored(rows, 1).head(0))
    frame = pd.concat(scored, ignore_index=True)
    figure = base.grid(frame, "tier", _draw, sharey=False)
    notes = [
        base.band_note(frame),
        f"pass@k: probability that k new samples include a right one, estimated without bias from {most} samples per "
        "problem.",
        _best(frame, fewest),
    ]
    if fewest < most:
        notes.append(f"k ends at {fewest} because some problems have only {fewest} graded samples.")
    return Product(base.titled(TITLE, runs), _sentence(frame, fewest), frame, notes=notes, figure=figure)


def _scored(rows: pd.DataFrame, k: int) -> pd.DataFrame:
    scores = {name: score(rows["n"], rows["c"], k) for name, score in SCORES.items()}
    keys = [*base.KEYS, "run_id", "tier", "k"]
    return rows.assign(k=k, **scores).groupby(keys, sort=False, as_index=False)[[*SCORES]].mean()


SCORES = {"pass_at_k": stats.pass_at_k, "best_at_k": stats.best_at_k}


def _draw(axes: Axes, here: pd.DataFrame) -> None:
    base.curves(axes, here, "pass_at_k", x="k", points=True)
    base.percent(axes)
    base.whole(axes)
    axes.set(xlabel="k (samples)", ylabel="held-out pass@k")


def _sentence(frame: pd.DataFrame, most: int) -> str:
    mean = frame.groupby([*base.KEYS, "k"], sort=False)["pass_at_k"].mean().mul(100).reset_index()
    parts = []
    for model, here in mean.groupby("model", sort=False):
        arms = []
        for arm, rows in here.groupby("arm", sort=False):
            ends = (base.spread(rows.loc[rows["k"] == k, "pass_at_k"], " %") for k in dict.fromkeys((1, most)))
            arms.append(f"{' to '.join(ends)} under {arm}")
        parts.append(f"{model} {', '.join(arms)}")
    rise = f"from k = 1 to k = {most}" if most > 1 else "at k = 1"
    return f"pass@k after training, mean over tiers, {rise}: {'; '.join(parts)} ({base.averaged(frame)})."


def _best(frame: pd.DataFrame, most: int) -> str:
    last = frame[frame["k"] == most][[*SCORES]].mean() * 100
    return (
        f"best@k, which the paper calls pass@k, draws with replacement and is therefore lower: at k = {most} it is "
        f"{last['best_at_k']:.1f} % where pass@k is {last['pass_at_k']:.1f} %, mean over all runs and tiers."
    )


ARTIFACT = Artifact("pass-at-k", TITLE, "beyond", (SUITE,), build)
