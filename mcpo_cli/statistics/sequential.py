"""Levels of several looks at growing data, so that all looks together keep level .05.

Seeds in stages: after each stage a difference is tested, and training stops once all are decided.

Testing at level .05 after 3, 6 and 12 seeds finds a difference that does not exist in 12 % of the cases. The levels of
the stages here sum to .05, so that even the union of the three tests keeps it, also for Holm-adjusted p-values of any
number of dependent differences. Simulated type I of one difference: 4.5 % (5.0 to 5.1 % at .0176, .0158 and .0234,
which rely on the dependence of the stages).

`look_level` is for looks that somebody declares: O'Brien and Fleming's spending function (1979, Biometrics 35, 549-556;
Lan and DeMets 1983, Biometrika 70, 659-663), alpha(t) = 2 - 2 Phi(z / sqrt(t)) at the share t of the data, whose
increments are the levels. They also sum to .05 rather than relying on the dependence of the looks: early looks cost
very little, and the last of 2, 3 and 5 looks has level .044, .034 and .022.
"""

import math

from scipy import special

from mcpo_cli.statistics.power import ALPHA

STAGES = (3, 6, 12)
"""Number of seeds after each stage."""
LEVELS = (0.015, 0.014, 0.021)
"""The largest adjusted p-value that decides at each stage."""


def look_level(look: int, looks: int) -> float:
    """The largest adjusted p-value that decides at look `look` of `looks` equal steps of data.

    Raises:
        ValueError: look is not in 1..looks.
    """
    if not 1 <= look <= looks:
        raise ValueError("a look must lie in 1..looks")
    return _spent(look / looks) - _spent((look - 1) / looks)


def _spent(share: float) -> float:
    """The level that is spent once this share of the data has been seen."""
    return float(2 * special.ndtr(special.ndtri(ALPHA / 2) / math.sqrt(share))) if share > 0 else 0.0
