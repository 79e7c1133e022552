"""Runs as tidy tables for other tools: one row an observation, each with the columns that name its run."""

import pandas as pd

from mcpo_cli.analysis.frames import ROWS, RUN, Runs


def tables(runs: Runs) -> dict[str, pd.DataFrame]:
    """Name -> table: `settings`, `steps` and `scores` of `Runs`, and one for each kind of rows that the runs have.

    A row is that of `records.py`; of `mini_batches` it is one metric of a mini-batch, `numerator / denominator`.
    """
    found = {"settings": runs.settings(), "steps": runs.steps(), "scores": runs.scores()}
    found |= {kind: rows for kind in ROWS if len(rows := runs.rows(kind))}
    if "mini_batches" in found:
        found["mini_batches"] = _a_row_a_metric(found["mini_batches"])
    return found


def _a_row_a_metric(mini_batches: pd.DataFrame) -> pd.DataFrame:
    keys = [*RUN, "step", "mini_batch"]
    rows = mini_batches[keys].assign(sums=mini_batches["sums"].map(lambda sums: list(sums.items()))).explode("sums")
    parts = [(metric, *map(float, sums)) for metric, sums in rows.pop("sums")]
    names = pd.DataFrame(parts, columns=["metric", "numerator", "denominator"]).astype({"metric": "string"})
    return pd.concat([rows.reset_index(drop=True), names], axis=1)
