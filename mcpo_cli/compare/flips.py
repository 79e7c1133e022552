"""Flips: the problems whose mean score differs between an arm and the baseline, largest change first."""

import re

import numpy as np
import pandas as pd

from mcpo_cli.compare.pairs import Pair

FLIP = ("model", "benchmark", "arm", "problem", "score", "baseline_score")
"""Columns of a flip."""


def flips_of(model: str, pair: Pair) -> pd.DataFrame:
    """The flips of a pair, one row per problem. model: the base model of both arms."""
    one_P, other_P = (np.nanmean(scores.score_SP, axis=0) for scores in (pair.one, pair.other))
    values = (model, pair.benchmark, pair.arm, pair.one.problems, one_P, other_P)
    flips = pd.DataFrame(dict(zip(FLIP, values, strict=True)))
    distance_P = np.abs(one_P - other_P)
    order_P = np.argsort(-distance_P, kind="stable")
    return flips.take(order_P[distance_P[order_P] > 0]).reset_index(drop=True)


def largest_flips(flips: pd.DataFrame) -> pd.DataFrame:
    """All flips of all benchmarks and arms, the largest change first; equal changes in the order of their problems.

    Numbers in the names of problems count as numbers: `q2` comes before `q10`.
    """
    if flips.empty:
        return flips
    sizes = (flips["score"] - flips["baseline_score"]).abs().round(9)
    keys = [(-size, natural(problem)) for size, problem in zip(sizes, flips["problem"], strict=True)]
    return flips.iloc[sorted(range(len(keys)), key=keys.__getitem__)]


def natural(name: object) -> list[tuple[int, str]]:
    """A key that sorts names by the numbers in them."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", str(name))]
