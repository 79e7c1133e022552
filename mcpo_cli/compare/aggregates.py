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
    mean over models of paired differences. better and difference_ are NaN for the baseline. No row for arms whose seeds
    differ between benchmarks, for one benchmark of logs, and for scores with gaps or outside 0..1.
    """
    for at in dict.fromkeys(part.at for part in slices):
        parts = [part for part in slices if part.at == at]
        for metric in metrics if at == slices[0].at else metrics[:1]:
            tables: dict[str, dict[str, pd.DataFrame]] = {}
            for part in parts:
                for arm in part.arms:
                    tables.setdefault(arm.name, {})[part.model] = _by_seed(arm, metric)
            frames = [table for by_model in tables.values() for table in by_model.values()]
            several = sum(table.shape[1] for table in tables[baseline].values()) > 1
            shares = all(scores.share for part in parts for arm in part.arms for scores in arm.scores.values())
            if (several or at) and shares and not _gaps(frames):
                yield from (_row(at, metric, name, tables[name], tables[baseline], lower=lower) for name in tables)


def _by_seed(arm: Arm, metric: Metric) -> pd.DataFrame:
    """The mean score of each seed (rows) on each benchmark."""
    return pd.DataFrame(
        {name: pd.Series(np.nanmean(metric.of(scores), axis=1), scores.seeds) for name, scores in arm.scores.items()}
    )


def _gaps(tables: Sequence[pd.DataFrame]) -> bool:
    return any(table.isna().to_numpy().any() or table.shape[1] != tables[0].shape[1] for table in tables)


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
    effect = stats.Effect(math.nan, math.nan, 0, math.nan, math.nan)
    if arm_tables is not baseline_tables:
        sides = matrices, [baseline_tables[model].to_numpy() for model in arm_tables]
        estimates["better"] = effects.probability_of_improvement(*(reversed(sides) if lower else sides))
        diff = [arm_tables[model].mean(axis=1) - baseline_tables[model].mean(axis=1) for model in arm_tables]
        # A seed of several models is one value, as the models may share what the seed decides.
        diff_S = pd.concat(diff, axis=1).mean(axis=1, skipna=False).dropna().to_numpy()
        effect = stats.paired_t(diff_S) if diff_S.size else effect
    row: Row = {"at": at, "metric": str(metric), "arm": arm}
    for name, estimate in estimates.items():
        row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    columns = {
        "mean": effect.mean, "low": effect.low, "high": effect.high, "half_width": effect.half_width,
        "sd": effect.sd, "p": effect.p, "seeds": effect.n if effect.n else math.nan,
    }  # fmt: skip
    return row | {f"difference_{name}": value for name, value in columns.items()}
