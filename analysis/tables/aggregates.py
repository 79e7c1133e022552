"""Aggregates of each arm over all benchmarks and models, and the smallest effect that these seeds can detect."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from mcpo_cli.analysis import published
from mcpo_cli.analysis.comparison import BOOTSTRAP_SEED
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.measures import STATISTICS
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.render import Grid
from mcpo_cli.config import load
from mcpo_cli.config.yaml_files import read_yaml
from mcpo_cli.statistics import effects, power, stats
from mcpo_cli.statistics.stats import Floats

BASELINES = {"table1": "DAPO", "table2": "MCPO"}
"""The baseline of each suite, as in its table."""
METRICS = {"pass@1": "pass@1", "best@8": "pass@8"}
"""Our name of each metric -> the paper's name."""
ALPHA, POWER = 0.05, 0.8
NOTES = (
    "mean, IQM: over tiers, models and seeds; the interquartile mean averages the middle half of all scores. "
    "P(better): probability that a run of the arm beats a run of the baseline (a tie counts half), mean over tiers and "
    "models (Agarwal et al. 2021). Intervals: 95% percentile intervals of a bootstrap that draws whole runs of each "
    f"model (numpy seed {BOOTSTRAP_SEED}); they cover about 80% with 3 seeds and about 88% with 5.",
    "difference: arm minus baseline of the mean over tiers and models, paired by seed, with a 95% t-interval over "
    "seeds; sd: its standard deviation over seeds.",
    f"detectable: the difference that these seeds detect with probability {POWER:g} at level {ALPHA:g} (two-sided "
    "paired t-test). published: the difference of the same arms in the paper's table, one run each. seeds for "
    "published: seeds needed to detect that difference if it varies over seeds as it does here.",
)


def build(data: Mapping[str, Runs]) -> Product:
    """One row per suite, metric and arm."""
    paper = read_yaml(load.EXPERIMENTS / "paper.yaml")
    rows = [row for suite in BASELINES for row in _rows(suite, data[suite], paper)]
    spec = data["table1"].cells[0].spec
    title = f"Aggregates over benchmarks (scale {spec.scale}, regime {spec.regime}, {spec.train.steps} global steps)"
    return Product(title, _sentence(rows), pd.DataFrame(rows), list(_grids(rows)), NOTES)


def _rows(suite: str, runs: Runs, paper: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for metric, printed in METRICS.items():
        scores = _scores(runs, metric)
        for arm, strata in scores.items():
            about = {"suite": suite, "metric": metric, "arm": arm, "baseline": BASELINES[suite]}
            estimates = {"mean": effects.mean(strata, _generator())}
            estimates["iqm"] = effects.interquartile_mean(strata, _generator())
            row: dict[str, Any] = about | {"seeds": min(map(len, strata))}
            if arm != BASELINES[suite]:
                baseline = scores[BASELINES[suite]]
                estimates["better"] = effects.probability_of_improvement(strata, baseline, _generator())
                row |= _difference(strata, baseline)
                row["published"] = _published(paper, suite, arm, printed)
                row["seeds_for_published"] = _seeds(row["published"], row["sd"])
            for name, one in estimates.items():
                row |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
            yield row


def _scores(runs: Runs, metric: str) -> dict[str, list[Floats]]:
    """One matrix of seeds x tiers per model, by arm."""
    scores: dict[str, dict[str, list[list[float]]]] = {}
    for cell in runs.cells:
        tiers = STATISTICS[f"{metric} by tier"].measure(runs, cell)
        scores.setdefault(cell.arm, {}).setdefault(cell.spec.model.name, []).append(list(tiers.values()))
    return {arm: [np.array(rows) for rows in models.values()] for arm, models in scores.items()}


def _difference(strata: Sequence[Floats], baseline: Sequence[Floats]) -> dict[str, float]:
    """Arm minus baseline, paired by seed; the plan gives the rows of both the same seeds in the same order."""
    diff_S = np.mean([(x_SN - y_SN).mean(axis=1) for x_SN, y_SN in zip(strata, baseline, strict=True)], axis=0)
    effect = stats.t_interval(diff_S)
    sd = float(diff_S.std(ddof=1)) if effect.n > 1 else math.nan
    row = {"difference": effect.mean, "difference_low": effect.low, "difference_high": effect.high, "sd": sd}
    return row | {"detectable": power.detectable_effect(sd, effect.n, POWER, ALPHA) if sd > 0 else math.nan}


def _published(paper: Mapping[str, Any], table: str, arm: str, metric: str) -> float:
    """The paper's difference, averaged over models and benchmarks."""
    rows = {(model, name): numbers for model, name, numbers in published.rows(paper, table)}
    pairs = [(numbers, rows[model, BASELINES[table]]) for (model, name), numbers in rows.items() if name == arm]
    return fmean(mine[key] - other[key] for mine, other in pairs for key in mine if key[1] == metric)


def _seeds(difference: float, sd: float) -> int | None:
    return power.seeds_needed(difference, sd, POWER, ALPHA) if sd > 0 else None


def _generator() -> np.random.Generator:
    # Each number has its own generator, so that adding an arm changes no other number.
    return np.random.default_rng(BOOTSTRAP_SEED)


def _sentence(rows: Sequence[Mapping[str, Any]]) -> str:
    parts = [
        f"{row['arm']} beats {row['baseline']} in pass@1 with probability {_shown(row, 'better')}; {_reach(row)}"
        for row in rows
        if row["suite"] == "table1" and row["metric"] == "pass@1" and row["arm"] != row["baseline"]
    ]
    return f"Over tiers and models {'; '.join(parts)}."


def _reach(row: Mapping[str, Any]) -> str:
    if math.isnan(row["detectable"]):
        return "the difference that these seeds can detect is unknown"
    return (
        f"{row['seeds']} seeds can detect a difference of {row['detectable']:.3f}, and detecting the published "
        f"{row['published']:+.3f} takes {_count(row)}"
    )


def _grids(rows: Sequence[Mapping[str, Any]]) -> Iterator[Grid]:
    header = ["metric", "arm", "seeds", "mean", "IQM", "P(better)", "difference", "sd", "detectable", "published"]
    for suite, baseline in BASELINES.items():
        lines = [
            [
                *(row["metric"], row["arm"], str(row["seeds"])),
                *(_shown(row, name) for name in ("mean", "iqm", "better", "difference")),
                *(_number(row.get(name)) for name in ("sd", "detectable", "published")),
                _count(row) if "published" in row else "-",
            ]
            for row in rows
            if row["suite"] == suite
        ]
        yield Grid(f"Arms of {suite}, against {baseline}", [*header, "seeds for published"], lines, labels=2)


def _shown(row: Mapping[str, Any], name: str) -> str:
    if name not in row:
        return "-"
    value, low, high = (row[f"{name}{bound}"] for bound in ("", "_low", "_high"))
    return f"{value:.3f} n=1" if math.isnan(low) else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.4f}"


def _count(row: Mapping[str, Any]) -> str:
    """Seeds needed to detect the published difference; unknown with one seed."""
    if math.isnan(row["sd"]):
        return "n=1"
    needed = row["seeds_for_published"]
    return f">{power.MOST_SEEDS}" if needed is None else f"{needed} seeds"


ARTIFACT = Artifact("aggregates", "Aggregates over benchmarks", "beyond", tuple(BASELINES), build)
