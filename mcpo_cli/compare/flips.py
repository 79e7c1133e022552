"""Flips: the problems whose mean score differs between an arm and the baseline, largest change first."""

import numpy as np
import pandas as pd

from mcpo_cli.compare.pairs import Pair

FLIP = ("model", "benchmark", "arm", "problem", "score", "baseline_score")
"""Columns of a flip."""


def flips_of(model: str, each: Pair) -> pd.DataFrame:
    """The flips of a pair, one row per problem. model: their base model."""
    one_P, other_P = (np.nanmean(scores.score_SP, axis=0) for scores in (each.one, each.other))
    values = (model, each.benchmark, each.arm, each.one.problems, one_P, other_P)
    found = pd.DataFrame(dict(zip(FLIP, values, strict=True)))
    distance_P = np.abs(one_P - other_P)
    order_P = np.argsort(-distance_P, kind="stable")
    return found.take(order_P[distance_P[order_P] > 0]).reset_index(drop=True)


def largest_flips(flips: pd.DataFrame, most: int) -> pd.DataFrame:
    """The first `most` flips by the size of the change, of all benchmarks and arms together."""
    if flips.empty:
        return flips
    size = (flips["score"] - flips["baseline_score"]).abs()
    return flips.loc[size.sort_values(ascending=False, kind="stable").index[:most]]
