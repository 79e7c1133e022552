"""The error of the difference of two published means about which little else is known.

A response of arm a to problem p in training run s is correct with probability mean_a + problem_ap + run_as. Numbers
that are not published have to be assumed, within a range (`Assumed`).

The error of a difference has three scopes, each including the one before it: other `answers` to the same problems,
other `problems` of the same kind, other `trainings` with the same recipes. A term of run x problem is left out; if a
standard deviation over runs is reported, it includes this term, the run's term and the answers'.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from mcpo_cli.statistics.stats import ROUNDING, Floats

Scope = Literal["answers", "problems", "trainings"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
Case = Literal["best", "plausible", "worst"]
CASES: tuple[Case, ...] = get_args(Case)
Range = tuple[float, float, float]
"""The least, the plausible and the largest value."""
GRID = 9
"""Values of a spread that are tried between its bounds."""


@dataclass(frozen=True)
class Assumed:
    """Ranges of unpublished quantities, each of three increasing numbers."""

    spread: Range = (0.3, 0.6, 0.8)
    """Variance of problem_ap as a share of m (1 - m), m the mean: 1 if each problem is always or never solved."""
    correlation: Range = (0.5, 0.8, 1.0)
    """Correlation of problem_ap of the two arms. Two fine-tunings of one model are usually at .8 to 1."""
    run_sd: Range = (0.0, 0.01, 0.02)
    """Standard deviation of run_as, in shares."""


@dataclass(frozen=True)
class PublishedArm:
    """A published mean over `problems`, `sets` scores of each problem and run, and `seeds` training runs.

    spread: as in `Assumed`; three equal numbers where it is known. run_sd: reported standard deviation over the runs.
    """

    mean: float
    problems: int
    sets: float
    spread: Range
    seeds: int = 1
    run_sd: float | None = None

    def variances(self, case: Case) -> tuple[Floats, Floats]:
        """Its variances by the choice of problems and by answers to the same problems, for each spread of a case."""
        low, plausible, high = self.spread
        spread_M = np.union1d([] if case == "plausible" else np.linspace(low, high, GRID), [plausible])
        problem_M = spread_M * self.mean * (1 - self.mean)
        answer_M = self.mean * (1 - self.mean) - problem_M
        return problem_M / self.problems, answer_M / (self.problems * self.sets * self.seeds)


def spread_of_error(mean: float, error: float, problems: int, sets: float) -> float:
    """The spread behind a reported standard error over problems of one run, of more than 1 set a problem."""
    variance = mean * (1 - mean)
    return min(max((problems * error**2 / variance - 1 / sets) / (1 - 1 / sets), 0.0), 1.0)


def error(
    a: PublishedArm, b: PublishedArm, assumed: Assumed, scope: Scope, case: Case, *, paired: bool, only: str = ""
) -> tuple[float, float]:
    """Standard error of the difference of two means, in a case of what is assumed, and its degrees of freedom.

    paired: both arms answered the same problems; otherwise their correlation is 0.
    only: the one quantity of `Assumed` that is in this case, while the others are plausible; empty: all are in it.
    """
    arms, retrained = (a, b), scope == "trainings"
    spread, correlation, run = (case if only in ("", name) else "plausible" for name in vars(assumed))
    (problem_I, answer_I), (problem_J, answer_J) = (arm.variances(spread) for arm in arms)
    # A reported deviation over runs includes the deviation of the answers.
    answer_I, answer_J = (
        answer_M * (not retrained or arm.run_sd is None) for answer_M, arm in ((answer_I, a), (answer_J, b))
    )
    variance_IJ = np.add.outer(answer_I, answer_J)
    if scope != "answers":
        r = assumed.correlation[2 - CASES.index(correlation)] if paired else 0.0
        shared_IJ = 2 * r * np.sqrt(np.multiply.outer(problem_I, problem_J))
        variance_IJ = variance_IJ + np.maximum(np.add.outer(problem_I, problem_J) - shared_IJ, 0.0)
    variance = float(variance_IJ.max() if spread == "worst" else variance_IJ.min())
    if not retrained:
        return math.sqrt(variance), math.inf
    sd = assumed.run_sd[CASES.index(run)]
    variance += sum((sd if arm.run_sd is None else arm.run_sd) ** 2 / arm.seeds for arm in arms)
    # Satterthwaite: only reported deviations are estimates; with these alone, this is Welch's test.
    doubt = sum((arm.run_sd**2 / arm.seeds) ** 2 / (arm.seeds - 1) for arm in arms if arm.run_sd is not None)
    return math.sqrt(variance), variance**2 / doubt if doubt else math.inf


def is_share(value: float, of: int, unit: float) -> bool:
    """True if a multiple of 1 / of prints as `value`, rounded or truncated to `unit`, or if multiples are denser."""
    multiples = (round(value * of), math.floor(value * of), math.ceil(value * of))
    return 1 / of <= 1.5 * unit or any(-unit / 2 - ROUNDING <= m / of - value < unit - ROUNDING for m in multiples)
