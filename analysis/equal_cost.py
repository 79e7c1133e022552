"""Scores of runs at equal cost: of all runs where the first of them ends, interpolated and never extrapolated."""

from collections.abc import Iterator, Sequence

import pandas as pd

from mcpo_cli import records
from mcpo_cli.analysis.frames import PAIR
from mcpo_cli.config.plan import Plan
from mcpo_cli.errors import ConfigError, McpoError, closest, nearest
from mcpo_cli.statistics.interpolate import at_cost

AVERAGE = "average"
"""In the place of a tier: the mean over the tiers."""
AXES = {"steps": "step"} | {column.removeprefix("cost/"): column for column in records.AXES}
"""What two runs can have had equally much of, and the column of `Runs.scores` that counts it."""
UNITS = {"steps": "global steps"} | {column.removeprefix("cost/"): words for column, words in records.AXES.items()}
DEFAULT = ("steps", "rollouts")


def known(what: str, name: str, choices: Sequence[str]) -> str:
    """`name`, if it is one of `choices`; `what` is the option that names it. Raises ConfigError otherwise."""
    if name not in choices:
        raise ConfigError(f"--{what} {name}: {nearest(name, choices)}", fix=f"--{what} {closest(name, choices)!r}")
    return name


def axes(wanted: Sequence[str], scores: pd.DataFrame, plan: Plan) -> list[str]:
    """The axes to compare at: those wanted, or of DEFAULT those that all runs recorded."""
    recorded = [at for at, column in AXES.items() if column in scores and not scores[column].isna().any()]
    for at in wanted:
        if known("at", at, list(AXES)) not in recorded:
            raise McpoError(
                f"not all runs of {plan.suite} recorded their {at}", fix=f"--at {recorded[0]}, or train them again"
            )
    return list(dict.fromkeys(wanted)) or [at for at in DEFAULT if at in recorded]


def at_equal(scores: pd.DataFrame, column: str, metrics: Sequence[str]) -> pd.DataFrame:
    """The scores of all runs at the largest cost that all runs of their model reach, linear between evaluations.

    scores: `Runs.scores`. column: the one that counts the cost. Index: model, arm, base_seed, seed, tier (AVERAGE
    included); one column a metric; `attrs["where"]` has that cost by model.
    """
    most = scores.groupby(["model", "arm", *PAIR], sort=False)[column].max()
    where = {str(model): float(reached) for model, reached in most.groupby("model", sort=False).min().items()}
    rows = []
    for (model, arm, *pair, tier), here in scores.groupby(["model", "arm", *PAIR, "tier"], sort=False):
        rising = _rising(here, column)
        costs, end = rising[column].tolist(), where[str(model)]
        values = {name: at_cost(costs, rising[name].tolist(), end) for name in metrics}
        rows.append({"model": model, "arm": arm, **dict(zip(PAIR, pair, strict=True)), "tier": tier, **values})
    frame = pd.DataFrame(rows)
    keys = ["model", "arm", *PAIR]
    means = frame.groupby(keys, sort=False, as_index=False)[list(metrics)].mean().assign(tier=AVERAGE)
    table = pd.concat([frame, means], ignore_index=True).set_index([*keys, "tier"])
    table.attrs["where"] = where
    return table


def _rising(run: pd.DataFrame, column: str) -> pd.DataFrame:
    """The evaluations of one run: of several between which the cost did not rise, the last counts."""
    return run.drop_duplicates(column, keep="last")


def by_run(table: pd.DataFrame) -> Iterator[tuple[str, str, str, str, pd.Series]]:
    """Model, arm, tier, metric, and the values of the runs by pair."""
    for metric in table.columns:
        for (model, arm, tier), rows in table[metric].groupby(["model", "arm", "tier"], sort=False):
            yield str(model), str(arm), str(tier), str(metric), rows.droplevel(["model", "arm", "tier"])


def curves(at: str, scores: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Each run's mean over tiers at the costs of the first run's evaluations, up to the cost that all runs reach.

    Columns: at, x, model, arm, base_seed, seed, value. at: one of AXES. scores: `Runs.scores`.
    """
    column, keys = AXES[at], ["model", "arm", *PAIR]
    mean = scores.groupby([*keys, "step", column], sort=False, as_index=False)[metric].mean()
    blocks = []
    for _, rows in mean.groupby("model", sort=False):
        runs = [pd.DataFrame(here) for _, here in rows.groupby(keys, sort=False)]
        end = min(here[column].max() for here in runs)
        grid = [*(cost for cost in runs[0][column] if cost < end), end]
        for here in runs:
            rising = _rising(here, column)
            costs, reached = rising[column].tolist(), rising[metric].tolist()
            values = [at_cost(costs, reached, where) for where in grid]
            about = {name: here[name].iloc[0] for name in ("model", "arm", *PAIR)}
            blocks.append(pd.DataFrame({**about, "at": at, "x": grid, "value": values}))
    return pd.concat(blocks, ignore_index=True)
