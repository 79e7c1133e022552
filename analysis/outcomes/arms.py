"""Numbers of runs by arm: means over seeds, with paired differences to a baseline; their rows and grids."""

from collections.abc import Collection, Sequence

from mcpo_cli.render import markup
from mcpo_cli.render.markup import Grid
from mcpo_cli.render.product import Row
from mcpo_cli.statistics import stats

DIGITS = 4
"""Decimals in a grid of rows."""


def rows(of_runs: Sequence[Row], names: Collection[str], baseline: str) -> list[Row]:
    """One row per regime, model, arm and number, from rows of `numbers.per_run`.

    Columns: `mean`, `low`, `high` over `seeds`; `difference` and its bounds, paired by base policy and seed with the
    arm `baseline`. Runs without the number are left out.
    """
    values: dict[tuple[str, ...], dict[tuple[int, int], float]] = {}
    for name in names:
        for run in of_runs:
            if name in run:
                key = (run["regime"], run["model"], run["arm"], name)
                values.setdefault(key, {})[run["base_seed"], run["seed"]] = run[name]
    rows = []
    for (regime, model, arm, name), by_seed in values.items():
        mean = stats.t_interval([*by_seed.values()])
        row: Row = {"block": "measured", "regime": regime, "model": model, "arm": arm, "statistic": name}
        row |= {"seeds": mean.n, "mean": mean.mean, "low": mean.low, "high": mean.high}
        base = values.get((regime, model, baseline, name), {})
        if arm != baseline and (paired := [by_seed[seed] - base[seed] for seed in by_seed if seed in base]):
            difference = stats.t_interval(paired)
            bounds = {"difference_low": difference.low, "difference_high": difference.high}
            row |= {"difference": difference.mean, **bounds}
        rows.append(row)
    return rows


def grids(rows: Sequence[Row]) -> list[Grid]:
    """A grid per regime and model: a line per arm, a column per statistic, differences in brackets."""
    tables = []
    for regime, model in dict.fromkeys((row["regime"], row["model"]) for row in rows):
        by_arm = {
            (row["arm"], row["statistic"]): row for row in rows if (row["regime"], row["model"]) == (regime, model)
        }
        names = [*dict.fromkeys(name for _, name in by_arm)]
        arms = dict.fromkeys(arm for arm, _ in by_arm)
        cells = [[arm, *(_shown(by_arm.get((arm, name))) for name in names)] for arm in arms]
        tables.append(Grid(f"{regime}, {model}", ["arm", *names], cells, labels=1))
    return tables


def _shown(row: Row | None) -> str:
    if row is None:
        return "-"
    text = markup.change(row["mean"], (row["high"] - row["low"]) / 2, DIGITS).removeprefix("+")
    if "difference" not in row:
        return text
    half = (row["difference_high"] - row["difference_low"]) / 2
    return f"{text} ({markup.change(row['difference'], half, DIGITS)})"
