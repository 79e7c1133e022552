"""Arms over all benchmarks and base models together: IQM, probability of improvement, and the mean difference."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from mcpo_cli.compare.scores import Arm, Metric, Slice
from mcpo_cli.render.product import Row
from mcpo_cli.statistics import effects, stats
from mcpo_cli.statistics.effects import MeanEstimate

UNKNOWN = MeanEstimate(math.nan, math.nan, math.nan)


def over_benchmarks(slices: Sequence[Slice], metrics: Sequence[Metric], baseline: str, *, lower: bool) -> Iterator[Row]:
    """One row per cost, metric and arm: all metrics at the first cost, the first metric at the other costs.

    Columns: at, metric, arm; mean, iqm, better (probability that a run of the arm beats a run of the baseline, with
    `lower` by a lower score), each with _low and _high; difference_ and mean, low, high, half_width, sd, p, seeds: the
    mean over models of differences that are paired by seed, over the benchmarks that all arms have. better and
    difference_ are NaN for the baseline, and difference_ for logs whose seeds do not belong together. No row for arms
    whose seeds differ between benchmarks, for one benchmark of logs, and for scores with gaps or outside 0..1.
    """
    for at in dict.fromkeys(part.at for part in slices):
        parts = [part for part in slices if part.at == at]
        for metric in metrics if at == slices[0].at else metrics[:1]:
            tables: dict[str, dict[str, pd.DataFrame]] = {}
            for part in parts:
                for arm in part.arms:
                    tables.setdefault(arm.name, {})[part.model] = _by_seed(arm, part.shared, metric)
            several = sum(table.shape[1] for table in tables[baseline].values()) > 1
            shares = all(arm.scores[name].share for part in parts for arm in part.arms for name in part.shared)
            if (several or at) and shares and not _gaps(tables):
                yield from (_row(at, metric, name, tables[name], tables[baseline], lower=lower) for name in tables)


def _by_seed(arm: Arm, benchmarks: Sequence[str], metric: Metric) -> pd.DataFrame:
    """The mean score of each seed (rows) on each benchmark."""
    scores_of = {name: arm.scores[name] for name in benchmarks}
    means = {name: np.nanmean(metric.of(scores), axis=1) for name, scores in scores_of.items()}
    return pd.DataFrame({name: pd.Series(mean_S, scores_of[name].seeds) for name, mean_S in means.items()})


def _gaps(tables: Mapping[str, Mapping[str, pd.DataFrame]]) -> bool:
    return any(table.isna().to_numpy().any() for by_model in tables.values() for table in by_model.values())


def _row(
    at: str,
    metric: Metric,
    arm: str,
    arm_tables: Mapping[str, pd.DataFrame],
    baseline_tables: Mapping[str, pd.DataFrame],
    *,
    lower: bool,
) -> Row:
    matrices = [table.to_numpy() for table in arm_tables.values()]
    estimates = {"mean": effects.mean(matrices), "iqm": effects.interquartile_mean(matrices), "better": UNKNOWN}
    effect = dict.fromkeys(("mean", "low", "high", "half_width", "sd", "p", "seeds"), math.nan)
    if arm_tables is not baseline_tables:
        sides = matrices, [baseline_tables[model].to_numpy() for model in arm_tables]
        estimates["better"] = effects.probability_of_improvement(*(reversed(sides) if lower else sides))
        diff = [arm_tables[model].mean(axis=1) - baseline_tables[model].mean(axis=1) for model in arm_tables]
        # Seeds of logs are named by their paths, and belong together only if all names are the same (`Arm`).
        paired = at or all(table.index.equals(baseline_tables[model].index) for model, table in arm_tables.items())
        # A seed of several models is one value, as the models may share what the seed decides.
        diff_S = pd.concat(diff, axis=1).mean(axis=1, skipna=False).dropna().to_numpy()
        effect |= stats.paired_t(diff_S).columns() if paired and diff_S.size else {}
    row: Row = {"at": at, "metric": str(metric), "arm": arm}
    for name, estimate in estimates.items():
        row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return row | {f"difference_{name}": value for name, value in effect.items()}
