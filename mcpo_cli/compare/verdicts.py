"""The tests of differences and their verdicts, in the words of `statistics/words.py`."""

import math
from collections.abc import Sequence
from dataclasses import asdict, astuple, fields, replace

import numpy as np
import pandas as pd

from mcpo_cli.render.product import Row
from mcpo_cli.statistics import difference_tests
from mcpo_cli.statistics.crossed import Estimate
from mcpo_cli.statistics.difference_tests import PValues
from mcpo_cli.statistics.power import ALPHA, least_p
from mcpo_cli.statistics.stats import LEAST, ROUNDING

P_VALUES = tuple(field.name for field in fields(PValues))
DIFFERENCE = (
    "at", "model", "benchmark", "metric", "k", "arm", "difference", "low", "high", *P_VALUES, "why",
    "identical", "gained", "lost", "mean", "baseline_mean", "problems", "clusters", "seeds", "samples", "over",
    "paired_by_seed", "by_seed", "sd", "above", "effect", "detectable", "family", "part_of", "share", "student",
)  # fmt: skip
"""The columns of a frame of differences."""


def judged(
    estimate: Estimate,
    margin: float | None,
    level: float,
    *,
    lower: bool = False,
    share: bool = False,
    differing: int | None = None,
) -> dict[str, object]:
    """A difference as columns of a frame: its interval at 1 - level, its p-values, and `why` there are none.

    The column `student` has the estimate that is tested, with the other sign if lower is better.

    Args:
        margin: the largest difference that does not matter, above 0.
        level: largest p-value that decides.
        lower: lower is better.
        share: scores are within 0..1, and so their differences within -1..1.
        differing: number of clusters of problems in which the sides differ, where that is known. If they do not differ
            in all clusters, p over problems is at least the smallest p of an exact test of the signs (`power.least_p`):
            zeros are not normal.
    """
    test, reason = estimate.test, _untestable(estimate)
    judged_test = replace(test, mean=-test.mean) if lower else test
    p_values = PValues() if reason else difference_tests.p_values(judged_test, margin)
    if differing and differing < estimate.clusters and not reason and estimate.over in ("problems", "both"):
        p_values = replace(p_values, p=max(p_values.p, least_p(differing)))
    interval = test.interval(1 - level)
    has_interval = estimate.over in ("problems", "both") or test.error > ROUNDING
    low, high = (interval.low, interval.high) if has_interval else (math.nan, math.nan)
    if share:
        low, high = (math.copysign(min(abs(end), 1.0), end) for end in (low, high))
    return {
        "difference": test.mean,
        "low": low,
        "high": high,
        **asdict(p_values),
        "why": reason,
        "identical": _identical(estimate),
        "student": judged_test,
    }


def _identical(estimate: Estimate) -> bool:
    """True if both sides have the same score with each seed, or on each problem, of several."""
    test = estimate.test
    return test.n > 1 and test.error <= ROUNDING and abs(test.mean) <= ROUNDING


def _untestable(estimate: Estimate) -> str:
    test, over_seeds = estimate.test, estimate.over in ("seeds", "history")
    if _identical(estimate):
        return f"the two sides have the same score {'with every seed' if over_seeds else 'on every problem'}"
    if test.n < LEAST:
        unit = "earlier run" if estimate.over == "history" else "seed" if over_seeds else "problem"
        return f"{test.n} {unit}{' has' if test.n == 1 else 's have'} no interval; at least {LEAST} are needed"
    if test.error > ROUNDING:
        return ""
    if estimate.over == "history":
        return "the earlier runs all have the same score, so they show no spread"
    place = "every seed" if over_seeds else "every problem and seed"
    return f"the difference is the same on {place}, so it has no variance to test by"


def numbered(rows: Sequence[Row]) -> pd.DataFrame:
    """The differences with the column `test`: differences of one family that repeat each other have one number."""
    distinct: list[Row] = []
    tests = []
    for row in rows:
        repeats = (index for index, other in enumerate(distinct) if _repeats(row, other))
        tests.append(next(repeats, len(distinct)))
        if tests[-1] == len(distinct):
            distinct.append(row)
    return pd.DataFrame(rows, columns=None if rows else list(DIFFERENCE)).assign(test=tests)


def _repeats(row: Row, other: Row) -> bool:
    """True if both are one comparison, such as equal steps and equal rollouts that end at the same scores."""
    is_same = all(row[key] == other[key] for key in ("family", "model", "arm", "benchmark", "metric"))
    return is_same and np.allclose(row["by_seed"], other["by_seed"], rtol=0, atol=ROUNDING)


def decided(differences: pd.DataFrame, level: float = ALPHA, *, lower: bool = False) -> pd.DataFrame:
    """Adds p-values that are adjusted over each family, and the verdicts.

    Args:
        differences: with the columns of `judged`; `family`: what is adjusted together; `test`: rows of one number are
            one test and count once.
        level: largest adjusted p-value that decides; below ALPHA at one of several looks at growing data.
        lower: lower is better.
    """
    adjusted = [f"{name}_adjusted" for name in P_VALUES]
    rows = differences.assign(**dict.fromkeys(adjusted, math.nan), verdict="not testable")
    for _, family in rows.groupby("family", sort=False):
        distinct = family.drop_duplicates("test")
        tests = difference_tests.adjusted([PValues(*row) for row in distinct[[*P_VALUES]].itertuples(index=False)])
        by_test = dict(zip(distinct["test"], tests, strict=True))
        for at, row in family[["difference", "test", "identical"]].iterrows():
            tested = by_test[int(row["test"])]
            rows.loc[at, adjusted] = astuple(tested)
            difference = -row["difference"] if lower else row["difference"]
            rows.loc[at, "verdict"] = difference_tests.word(difference, tested, level, identical=bool(row["identical"]))
    return rows
