"""Why reweighting changes the speed of learning: the arms of the suite `why-reweight` side by side."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.render import Grid
from mcpo_cli.statistics import stats
from mcpo_cli.statistics.curves import time_factor
from mcpo_cli.statistics.stats import Floats, Interval

SUITE = "why-reweight"
BASELINE = "DAPO w/o filter"
MEANS = {
    "share_minority": "weight/share_minority",
    "effective_sample": "weight/effective_sample",
    "signal_to_noise": "gradient/signal_to_noise",
}
"""Column -> metric; the mean over the steps that have it."""
NOTES = (
    "time factor: c such that the training accuracy of the arm at step t is about that of the baseline at c t; below 1 "
    "it learns more slowly. Per seed, then a 95% t-interval over seeds in log c.",
    "pass@1: average over the held-out tiers after the last step, minus the baseline's; seeds paired, 95% t-interval.",
    "share minority: share of the batch's query weight on prompts with 0 < p <= .5. effective sample: (sum |A|)^2 / "
    "sum A^2, in rollouts. signal to noise: of a mini-batch's gradient, from gradients of single prompts. Means over "
    "steps and seeds; ± half of a 95% t-interval over seeds.",
)


def build(data: Mapping[str, Runs]) -> Product:
    """One row an arm of each model."""
    runs = data[SUITE]
    rows = _rows(runs)
    spec = runs.cells[0].spec
    title = f"why-reweight (scale {spec.scale}, regime {spec.regime}, {spec.train.steps} global steps)"
    return Product(title, _sentence(rows), pd.DataFrame(rows), [_grid(rows)], NOTES)


def _sentence(rows: Sequence[Mapping[str, Any]]) -> str:
    found = [f"{row['arm']} {_shown(row, 'time_factor')}" for row in rows if row["arm"] != BASELINE]
    return f"Speed of learning as a multiple of {BASELINE}'s: {'; '.join(found)}."


def _grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    names = ["time_factor", "pass_at_1_minus_baseline", *MEANS]
    header = ["model", "arm", "seeds", "time factor", "pass@1", *(name.replace("_", " ") for name in MEANS)]
    cells = [[row["model"], row["arm"], str(row["seeds"]), *(_shown(row, name) for name in names)] for row in rows]
    return Grid(f"Against {BASELINE}", header, cells, labels=2)


def _rows(runs: Runs) -> list[dict[str, Any]]:
    """One row an arm of each model; bounds are NaN where they are not defined."""
    steps, scores = runs.steps(), _scores(runs)
    rows = []
    for (model, arm), found in steps.groupby(["model", "arm"], sort=False):
        row: dict[str, Any] = {"model": model, "arm": arm, "seeds": found["seed"].nunique()}
        if arm == BASELINE:
            row |= _bounded("time_factor", 1.0, math.nan, math.nan)
            row |= _bounded("pass_at_1_minus_baseline", 0.0, math.nan, math.nan)
        else:
            baseline = steps[(steps["model"] == model) & (steps["arm"] == BASELINE)]
            times = np.arange(found["step"].nunique(), dtype=np.float64)
            factor = time_factor(_curves(baseline), _curves(found), times)
            row |= _bounded("time_factor", factor.factor, factor.low, factor.high)
            here = scores[scores["model"] == model].pivot(index="seed", columns="arm", values="share")
            row |= _interval("pass_at_1_minus_baseline", stats.t_interval((here[arm] - here[BASELINE]).to_numpy()))
        for name, metric in MEANS.items():
            row |= _interval(name, stats.t_interval(found.groupby("seed")[metric].mean().to_numpy()))
        rows.append({**row, "run_ids": " ".join(found["run_id"].unique())})
    return rows


def _scores(runs: Runs) -> pd.DataFrame:
    """Average pass@1 over the tiers after the last step: model, arm, seed, share."""
    frame = runs.eval()
    frame["share"] = frame["c"] / frame["n"]
    tiers = frame.groupby(["model", "arm", "seed", "tier"])["share"].mean()
    return tiers.groupby(["model", "arm", "seed"]).mean().reset_index()


def _curves(found: pd.DataFrame) -> Floats:
    """Training accuracy, a row a seed; the rollouts of the first step are the base policy's."""
    return found.pivot(index="seed", columns="step", values="train/accuracy").to_numpy()


def _interval(name: str, found: Interval) -> dict[str, float]:
    return _bounded(name, found.mean, found.low, found.high)


def _bounded(name: str, value: float, low: float, high: float) -> dict[str, float]:
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _shown(row: Mapping[str, Any], name: str) -> str:
    value, low, high = (row[f"{name}{bound}"] for bound in ("", "_low", "_high"))
    if name == "effective_sample":
        return f"{value:.0f}" if math.isnan(low) else f"{value:.0f} ± {(high - low) / 2:.0f}"
    return f"{value:.3f}" if math.isnan(low) else f"{value:.3f} [{low:.3f}, {high:.3f}]"


ARTIFACT = Artifact("why-reweight", "Why reweighting changes how fast a policy learns", "diagnostic", (SUITE,), build)
