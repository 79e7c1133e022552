"""Paired differences of arms from a baseline, and the families that their p-values are adjusted over."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from mcpo_cli.analysis.equal_cost import by_run
from mcpo_cli.statistics import stats
from mcpo_cli.statistics.power import ALPHA
from mcpo_cli.statistics.stats import Effect


@dataclass(frozen=True)
class Difference:
    """Arm minus baseline, paired by base policy and seed."""

    at: str
    """One of AXES: equal in what."""
    model: str
    arm: str
    tier: str
    metric: str
    effect: Effect
    by_seed: tuple[float, ...]
    """Difference of each pair of which both runs have a score."""
    p_holm: float = np.nan
    """p adjusted over the family: the headline differences, or the others."""

    @property
    def above(self) -> int:
        """Number of pairs with a positive difference, ignoring rounding errors."""
        return sum(value > stats.ROUNDING for value in self.by_seed)

    @property
    def verdict(self) -> str:
        """`above` or `below` where p is at most ALPHA, with `(Holm)` where that holds for the whole family."""
        if not self.effect.p <= ALPHA:
            return "open"
        return ("above" if self.effect.mean > 0 else "below") + (" (Holm)" if self.p_holm <= ALPHA else "")

    def repeats(self, other: "Difference") -> bool:
        """Whether both are one comparison: equal steps and equal rollouts are, where they end at the same scores."""
        same = (self.model, self.arm, self.tier, self.metric) == (other.model, other.arm, other.tier, other.metric)
        return same and np.allclose(self.by_seed, other.by_seed, rtol=0, atol=stats.ROUNDING)


def differences(at: str, table: pd.DataFrame, baseline: str) -> Iterator[Difference]:
    """The differences of all arms from `baseline`, by model, tier and metric: one paired t-test each.

    Each difference is tested with its own standard deviation. A deviation that is pooled over arms, the residual of an
    analysis of variance of arm x pair with (arms - 1)(pairs - 1) degrees of freedom, finds more with three seeds, but
    only if all arms vary alike. They need not: a difference's deviation goes from .013 to .028 in the suite `headline`
    (12 seeds), and from .01 to .17 in `methods-baselines`, where one arm collapses. Simulated probability of finding a
    difference that is there (of 2 standard deviations with 3 seeds, of 1 with 8), and one that is not there, at level
    .05 (`tests/unit/test_pooled_deviation.py`):

    |                                        | 3 seeds, 3 arms | 3 seeds, 6 arms | 8 seeds, 6 arms |
    |----------------------------------------|-----------------|-----------------|-----------------|
    | found, own deviation                   |             .46 |             .46 |             .68 |
    | found, pooled, arms vary alike         |             .73 |             .87 |             .79 |
    | false, own deviation                   |             .05 |             .05 |             .05 |
    | false, pooled, arms vary alike         |             .05 |             .05 |             .05 |
    | false, pooled, one arm varies 2 x more |             .08 |             .12 |             .12 |
    | false, pooled, one arm varies 3 x more |             .10 |             .19 |             .19 |

    A test of equal variances that chooses between the two does not help: with three seeds it finds too little.

    Args:
        at: one of AXES.
        table: `equal_cost.at_equal` at that axis. Pairs of which a run has no score are left out.
    """
    held = {(model, arm, tier, metric): runs for model, arm, tier, metric, runs in by_run(table)}
    for (model, arm, tier, metric), runs in held.items():
        if arm != baseline:
            diff_S = (runs - held[model, baseline, tier, metric]).dropna().to_numpy()
            yield Difference(at, model, arm, tier, metric, stats.paired_t(diff_S), tuple(diff_S.tolist()))


def distinct(family: Sequence[Difference]) -> list[Difference]:
    """The differences of `family` that repeat none before them."""
    found: list[Difference] = []
    for one in family:
        if not any(one.repeats(other) for other in found):
            found.append(one)
    return found


def adjusted(family: Sequence[Difference]) -> list[Difference]:
    """The differences with p adjusted over the family by Holm's method. Those that repeat each other count once."""
    tests = distinct(family)
    p_holm = stats.holm([one.effect.p for one in tests])
    return [
        replace(one, p_holm=next(float(p) for p, test in zip(p_holm, tests, strict=True) if one.repeats(test)))
        for one in family
    ]
