"""The words of a verdict on a difference: a fixed list, each with the rule that decides it.

All tests are at level .05, on p-values adjusted over arms and benchmarks (Holm 1979). `m` is the margin
that was declared with `--margin`: the largest difference that does not matter.

| verdict       | rule                                                                                     |
|---------------|------------------------------------------------------------------------------------------|
| equivalent    | a margin is declared, and both one-sided tests (Schuirmann 1987) find |difference| < m    |
| better        | the two-sided test finds a difference, and it is above 0                                  |
| worse         | the same, and it is below 0                                                               |
| not worse     | a margin is declared, and a one-sided test finds the difference above -m                  |
| undecided     | none of these                                                                             |
| not testable  | there is no p-value; the sentence next to it gives the reason                             |

The first rule that applies gives the word. `undecided` does not mean that there is no difference: the smallest one that
the design can find is printed next to it.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import pandas as pd

from mcpo_cli.statistics import stats
from mcpo_cli.statistics.crossed import Estimate
from mcpo_cli.statistics.power import ALPHA
from mcpo_cli.statistics.stats import LEAST, ROUNDING

Word = Literal["equivalent", "better", "worse", "not worse", "undecided", "not testable"]

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
    test, interval, why = found.test, found.test.interval(1 - level), _untestable(found)
    p = not_worse = equivalent = math.nan
    if not why:
        p = min(1.0, 2 * min(test.p_above(), test.p_below()))
        if margin is not None:
            not_worse = test.p_above(-margin)
            equivalent = max(not_worse, test.p_below(margin))
    return {
        "difference": test.mean,
        "low": interval.low,
        "high": interval.high,
        "p": p,
        "p_not_worse": not_worse,
        "p_equivalent": equivalent,
        "why": why,
    }


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
    for name in ("p", "p_not_worse", "p_equivalent"):
        # Other metrics of the same samples, and the mean over benchmarks, repeat the question: each is its own family.
        found[f"{name}_adjusted"] = found.groupby(["metric", "family"])[name].transform(
            lambda p: stats.holm(p.to_numpy())
        )
    return found.assign(verdict=[_word(row, level) for row in found.to_dict("records")])


def _word(row: Mapping[Hashable, float], level: float) -> Word:
    if np.isnan(row["p"]):
        return "not testable"
    if row["p_equivalent_adjusted"] <= level:
        return "equivalent"
    if row["p_adjusted"] <= level:
        return "better" if row["difference"] > 0 else "worse"
    return "not worse" if row["p_not_worse_adjusted"] <= level else "undecided"


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
