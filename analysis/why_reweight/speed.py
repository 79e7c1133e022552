"""The effect of reweighting on the speed of learning: compares the arms of the suite `why-reweight`."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from mcpo_cli.analysis import render
from mcpo_cli.analysis.frames import PAIR, Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.render import Columns, Grid
from mcpo_cli.statistics import stats
from mcpo_cli.statistics.stats import Floats, Interval

from .time_factor import time_factor

SUITE = "why-reweight"
BASELINE = "DAPO w/o filter"
MEANS = {
    "share_minority": "weight/share_minority",
    "effective_sample": "weight/effective_sample",
    "signal_to_noise": "gradient/signal_to_noise",
}
"""Column -> metric; the column is the mean over the steps that have the metric."""
NOTES = (
    "time factor: the arm's training accuracy at step t is about the baseline's at step (time factor) x t; below 1 the "
    "arm learns more slowly. Computed per pair of base policy and seed; 95% t-interval over pairs of its "
    "logarithm.",
    "pass@1: mean over the held-out tiers after the last step, minus the baseline's, paired by base policy and seed; "
    "95% t-interval.",
    "share minority: share of the batch's query weight on prompts with 0 < p <= .5. effective sample: (sum |A|)^2 / "
    "sum A^2, in rollouts. signal to noise: signal-to-noise ratio of a mini-batch's gradient, estimated from gradients "
    "of single prompts. Means over steps and seeds with the 95% t-interval over runs.",
)


def build(data: Mapping[str, Runs]) -> Product:
    """One row per model and arm."""
    runs = data[SUITE]
    rows = _rows(runs)
    spec = runs.cells[0].spec
    title = f"why-reweight (scale {spec.scale}, regime {spec.regime}, {spec.train.steps} global steps)"
    grid = Grid.of(f"Against {BASELINE}", rows, COLUMNS, labels=2)
    factor = render.bounded("time_factor")
    factors = "; ".join(f"{row['arm']} {factor(row)}" for row in rows if row["arm"] != BASELINE)
    sentence = f"Speed of learning as a multiple of {BASELINE}'s: {factors}."
    return Product(title, sentence, pd.DataFrame(rows), [grid], NOTES)


def _rows(runs: Runs) -> list[dict[str, Any]]:
    """One row per model and arm; undefined bounds are NaN."""
    steps, scores = runs.steps(), _scores(runs)
    rows = []
    for (model, arm), here in steps.groupby(["model", "arm"], sort=False):
        row: dict[str, Any] = {"model": model, "arm": arm, "seeds": here["run_id"].nunique()}
        if arm == BASELINE:
            row |= render.columns("time_factor", 1.0, math.nan, math.nan)
            row |= render.columns("pass_at_1_minus_baseline", 0.0, math.nan, math.nan)
        else:
            baseline = steps[(steps["model"] == model) & (steps["arm"] == BASELINE)]
            times = np.arange(here["step"].nunique(), dtype=np.float64)
            factor = time_factor(_curves(baseline), _curves(here), times)
            row |= render.columns("time_factor", factor.factor, factor.low, factor.high)
            share = scores[scores["model"] == model].pivot(index=PAIR, columns="arm", values="share")
            row |= _interval("pass_at_1_minus_baseline", stats.t_interval((share[arm] - share[BASELINE]).to_numpy()))
        for name, metric in MEANS.items():
            row |= _interval(name, stats.t_interval(here.groupby(PAIR)[metric].mean().to_numpy()))
        rows.append({**row, "run_ids": " ".join(here["run_id"].unique())})
    return rows


def _scores(runs: Runs) -> pd.DataFrame:
    """Columns model, arm, PAIR and share: mean pass@1 over the tiers after the last step."""
    frame = runs.eval()
    frame["share"] = frame["c"] / frame["n"]
    tiers = frame.groupby(["model", "arm", *PAIR, "tier"])["share"].mean()
    return tiers.groupby(["model", "arm", *PAIR]).mean().reset_index()


def _curves(steps: pd.DataFrame) -> Floats:
    """Training accuracy, runs x steps; the base policy samples the rollouts of the first step."""
    return steps.pivot(index=PAIR, columns="step", values="train/accuracy").to_numpy()


def _interval(name: str, interval: Interval) -> dict[str, float]:
    return render.columns(name, interval.mean, interval.low, interval.high)


COLUMNS: Columns = {
    **{name: name for name in ("model", "arm", "seeds")},
    "time factor": render.bounded("time_factor"),
    "pass@1": render.bounded("pass_at_1_minus_baseline"),
    "share minority": render.bounded("share_minority"),
    "effective sample": render.bounded("effective_sample", ".0f"),
    "signal to noise": render.bounded("signal_to_noise"),
}
ARTIFACT = Artifact("why-reweight", "Why reweighting changes how fast a policy learns", "diagnostic", (SUITE,), build)
