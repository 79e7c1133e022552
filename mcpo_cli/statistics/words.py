"""The words of a verdict: those for a difference, each with its rule, for a claim that expected one, and for a gate.

All tests are at the level that is given, .05 unless the data are looked at several times (`power.look_level`), on
p-values adjusted over a family (Holm 1979). `m` is the margin: the largest difference that does not matter, declared
before looking.

| word          | rule                                                                                      |
|---------------|-------------------------------------------------------------------------------------------|
| identical     | both sides have the same score in each seed, or on each problem: there is nothing to test   |
| equivalent    | a margin is declared, and both one-sided tests (Schuirmann 1987) find |difference| < m     |
| better        | the two-sided test finds a difference, and it is above 0                                   |
| worse         | the same, and it is below 0                                                                |
| not worse     | a margin is declared, and a one-sided test finds the difference above -m                   |
| undecided     | none of these                                                                              |
| not testable  | there is no p-value; the sentence next to it gives the reason                              |

The first rule that applies gives the word. `undecided` does not mean that there is no difference.

A claim expects better (than its reference), worse or equivalent. It is `supported` by that word and `contradicted` by
another, but for `no difference`, which is equivalent in place of better or worse, `unresolved`, which is undecided, and
`not testable`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from mcpo_cli.statistics import stats
from mcpo_cli.statistics.power import ALPHA
from mcpo_cli.statistics.stats import Student

Word = Literal["identical", "equivalent", "better", "worse", "not worse", "undecided", "not testable"]
ClaimWord = Literal["supported", "contradicted", "no difference", "unresolved", "not testable"]
CLAIM_WORDS: tuple[ClaimWord, ...] = get_args(ClaimWord)
OPEN = CLAIM_WORDS[3:]
"""Words that leave a claim open."""
GateWord = Literal["holds", "broken", "undecided"]
"""The words for a rule of a gate (`compare/gate.py`), by one-sided tests of what it demands and of its opposite."""


@dataclass(frozen=True)
class PValues:
    """The p-values of one difference; NaN where there is no test."""

    p: float = math.nan
    """Two-sided, of no difference."""
    p_not_worse: float = math.nan
    """One-sided, of a difference of -margin or less; NaN without a margin."""
    p_equivalent: float = math.nan
    """The larger of the two one-sided p-values of |difference| of margin or more; NaN without a margin."""


def p_values(difference: Student, margin: float | None = None) -> PValues:
    """The tests of a difference. margin: the largest difference that does not matter, above 0."""
    p = 2 * min(difference.p_above(), difference.p_below())
    if margin is None:
        return PValues(p)
    not_worse = difference.p_above(-margin)
    # Unlike max, np.maximum is NaN if one of both is.
    return PValues(p, not_worse, float(np.maximum(not_worse, difference.p_below(margin))))


def adjusted(family: Sequence[PValues]) -> list[PValues]:
    """The p-values of one family, each kind adjusted over it by Holm's method; those that are NaN do not count."""
    kinds = [[getattr(p_value, kind) for p_value in family] for kind in ("p", "p_not_worse", "p_equivalent")]
    return [PValues(*map(float, row)) for row in np.array([stats.holm(kind) for kind in kinds]).T]


def word(difference: float, tests: PValues, level: float = ALPHA, *, identical: bool = False) -> Word:
    """The word for a difference.

    Args:
        tests: its adjusted p-values.
        level: the largest of them that decides.
        identical: whether both sides have the same score in each seed, or on each problem.
    """
    if identical:
        return "identical"
    if math.isnan(tests.p):
        return "not testable"
    if tests.p_equivalent <= level:
        return "equivalent"
    if tests.p <= level:
        return "better" if difference > 0 else "worse"
    return "not worse" if tests.p_not_worse <= level else "undecided"


def claim_word(word: Word, expected: Word) -> ClaimWord:
    """The word for a claim that expected the word `expected` of a difference that has the word `word`."""
    if word == expected:
        return "supported"
    others: dict[Word, ClaimWord] = {
        "equivalent": "no difference",
        "undecided": "unresolved",
        "not testable": "not testable",
    }
    return others.get(word, "contradicted")
