"""The verdicts on the differences of two sides, in the words of `statistics/words.py`, and in sentences."""

from collections.abc import Sequence
from dataclasses import asdict, astuple, fields
from typing import get_args

import pandas as pd

from mcpo_cli.statistics import words
from mcpo_cli.statistics.crossed import Estimate
from mcpo_cli.statistics.power import ALPHA
from mcpo_cli.statistics.stats import LEAST, ROUNDING
from mcpo_cli.statistics.words import PValues, Word

P_VALUES = tuple(field.name for field in fields(PValues))
MOST_NAMED = 8
"""Most benchmarks that a sentence names for each word."""


def judged(found: Estimate, margin: float | None, level: float) -> dict[str, object]:
    """A difference with its interval and p-values, as columns of a frame.

    Columns: difference; low and high, the bounds of the interval at 1 - level; p, two-sided, of no difference;
    p_not_worse, one-sided, of a difference of -margin or less; p_equivalent, the larger of the two one-sided p-values
    of |difference| of margin or more; why, the reason why there is no p, else empty. p is NaN without a test, the other
    two also without a margin.

    Args:
        margin: the largest difference that does not matter, above 0.
        level: largest p-value that decides.
    """
    interval, why = found.test.interval(1 - level), _untestable(found)
    p_values = words.PValues() if why else words.p_values(found.test, margin)
    return {"difference": found.test.mean, "low": interval.low, "high": interval.high, **asdict(p_values), "why": why}


def _untestable(found: Estimate) -> str:
    if found.test.n < LEAST:
        return f"{found.test.n} problems have no interval; at least {LEAST} are needed"
    if found.test.error > ROUNDING:
        return ""
    if abs(found.test.mean) <= ROUNDING:
        return "the two sides have the same score on every problem"
    return "the difference is the same on every problem and seed, so it has no variance to test by"


def verdicts(differences: pd.DataFrame, level: float = ALPHA) -> pd.DataFrame:
    """Add Holm-adjusted p-values and the verdict to differences.

    differences: with the columns of `judged`, `metric` and `family`: what is adjusted together.

    level: largest adjusted p-value that decides; below ALPHA at one of several looks at growing data.
    """
    found = differences.copy()
    # Other metrics of the same samples, and the mean over benchmarks, repeat the question: each is its own family.
    for _, family in found.groupby(["metric", "family"], sort=False):
        tests = [PValues(*row) for row in family[list(P_VALUES)].itertuples(index=False)]
        for at, mean, tested in zip(family.index, family["difference"], words.adjusted(tests), strict=True):
            adjusted = [f"{name}_adjusted" for name in P_VALUES]
            found.loc[at, [*adjusted, "verdict"]] = [*astuple(tested), words.word(mean, tested, level)]
    return found


def sentences(differences: pd.DataFrame, baseline: str) -> list[str]:
    """The verdict on each arm in a sentence, by benchmark; of several metrics, on the first."""
    first = differences[differences["metric"] == differences["metric"].iloc[0]]
    return [_sentence(str(arm), own, baseline) for arm, own in first.groupby("arm", sort=False)]


def _listed(names: Sequence[str]) -> str:
    """All of them, or the first MOST_NAMED and how many more."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def signed(value: float) -> str:
    """`+.022`."""
    return f"{value:+.3f}".replace("0.", ".", 1)


def _sentence(arm: str, rows: pd.DataFrame, baseline: str) -> str:
    parts: dict[str, list[str]] = {word: [] for word in get_args(Word)}
    for row in rows.to_dict("records"):
        where = row["benchmark"] if row["family"] == "benchmarks" else "their mean"
        parts[row["verdict"]].append(f"{where} ({signed(row['difference'])})")
    found = "; ".join(f"{word} on {_listed(names)}" for word, names in parts.items() if names)
    return f"{arm} against {baseline}: {found}."
