"""The error of the difference of two published means about which little else is known.

A response of arm a to problem p in training run s is correct with probability mean_a + problem_ap + run_as. Numbers
that are not published have to be assumed, within a range (`Assumed`).

The error of a difference has three scopes, each including the one before it: other `answers` to the same problems,
other `problems` of the same kind, other `trainings` with the same recipes. A term of run x problem is left out; if a
standard deviation over runs is reported, it includes that term, the run's and the answers'.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy import optimize

from mcpo_cli.statistics import stats
from mcpo_cli.statistics.crossed import MOST
from mcpo_cli.statistics.power import noncentrality
from mcpo_cli.statistics.stats import ROUNDING, Floats

Scope = Literal["answers", "problems", "trainings"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
Case = Literal["best", "plausible", "worst"]
CASES: tuple[Case, ...] = get_args(Case)
Range = tuple[float, float, float]
"""The least, the plausible and the largest value."""
Spread = tuple[Floats, Floats, int]
"""Possible pairs of the variances of problem_ap and of a single answer, and the index of the plausible pair."""
GRID = 9
"""Values of a spread that are tried between its bounds."""
SLACK = 1e-6
"""Tolerance of a number of samples: far below one."""


@dataclass(frozen=True)
class Assumed:
    """Ranges of unpublished quantities, each of three increasing numbers."""

    spread: Range = (0.3, 0.6, 0.8)
    """Variance of problem_ap as a share of m (1 - m), m the mean: 1 if each problem is always or never solved."""
    correlation: Range = (0.5, 0.8, 1.0)
    """Of problem_ap of the two arms over the problems. Two fine-tunings of one model are usually at .8 to 1."""
    run_sd: Range = (0.0, 0.01, 0.02)
    """Standard deviation of run_as, in shares."""


@dataclass(frozen=True)
class PublishedArm:
    """Variance of a published mean by source, for each spread over the problems that may be behind it.

    problem_M, answer_M: by the choice of problems, and by the answers to the same ones. plausible: index of the
    plausible spread. run_sd: reported standard deviation of a run's mean over `seeds` training runs.
    """

    problem_M: Floats
    answer_M: Floats
    plausible: int
    seeds: int = 1
    run_sd: float | None = None

    def spread(self, case: Case) -> tuple[Floats, Floats]:
        """The variances to choose from in a case: all of them, or the plausible ones alone."""
        chosen = slice(self.plausible, self.plausible + 1) if case == "plausible" else slice(None)
        return self.problem_M[chosen], self.answer_M[chosen]


@dataclass(frozen=True)
class Parts:
    """Variance of a difference by source; 0 if the scope leaves it out. df: infinite if every part is assumed."""

    answers: float
    problems: float
    runs: float
    df: float = math.inf

    @property
    def error(self) -> float:
        """Standard error."""
        return math.sqrt(self.answers + self.problems + self.runs)


def assumed_spread(value: float, assumed: Range) -> Spread:
    """The spreads of a binary score whose mean is `value`, over the range that is assumed."""
    whole, share_M = value * (1 - value), _grid(assumed)
    return share_M * whole, (1 - share_M) * whole, _nearest(share_M, assumed[1])


def spread_of_error(value: float, error: float, problems: int, sets: float) -> Spread:
    """The only spread behind a reported standard error over problems of one run, of more than 1 set a problem."""
    whole = value * (1 - value)
    problem = min(max((problems * error**2 - whole / sets) / (1 - 1 / sets), 0.0), whole)
    return np.array([problem]), np.array([whole - problem]), 0


def spread_of_squares(value: float, square: tuple[float, float], problems: int, samples: int, assumed: Range) -> Spread:
    """The spreads of counts whose mean square of c/n lies in the range `square` (see `mean_square`).

    Both variances are unbiased for these problems and samples: that of an answer is n/(n - 1) times the mean of
    (c/n)(1 - c/n), and that of problems is the rest of the variance of c/n over the problems.
    """
    square_M = _grid((square[0], sum(square) / 2, square[1]))
    answer_M = (value - square_M) * samples / (samples - 1)
    problem_M = np.maximum((square_M - value**2) * problems / (problems - 1) - answer_M / samples, 0.0)
    return problem_M, answer_M, _nearest(problem_M / max(value * (1 - value), ROUNDING), assumed[1])


def mean_square(
    problems: int, samples: int, mean: float, other: float, k: int, kind: str, tolerance: tuple[float, float]
) -> tuple[float, float] | None:
    """Range of the mean over problems of (c/n)^2, for counts c of n samples that give two published numbers.

    An integer program over the numbers of problems with each count; None if no counts give both numbers.

    Args:
        mean: of c/n. other: the mean of pass@k (`kind` "pass") or best@k ("best") of the same samples.
        tolerance: how far from `mean` and `other` the true numbers can be.
    """
    count_C = np.arange(samples + 1)
    share_C = count_C / samples
    other_C = (stats.pass_at_k if kind == "pass" else stats.best_at_k)(samples, count_C, k)
    rows = np.array([np.ones(samples + 1), count_C, np.asarray(other_C)])
    low, high = (
        np.array([1.0, (mean + sign * tolerance[0]) * samples, other + sign * tolerance[1]]) * problems
        for sign in (-1, 1)
    )
    # Whole numbers of problems and of samples are exact, so that the solver need not repair a solution.
    low[:2], high[:2] = np.ceil(low[:2] - SLACK), np.floor(high[:2] + SLACK)
    limits, whole = optimize.LinearConstraint(rows, low, high), np.ones(samples + 1, dtype=np.int64)
    ends = [
        optimize.milp(sign * share_C**2, constraints=limits, integrality=whole, bounds=optimize.Bounds(0, problems))
        for sign in (1, -1)
    ]
    squares = [float(share_C**2 @ np.rint(end.x)) / problems for end in ends if end.x is not None]
    return (squares[0], squares[1]) if all(end.success for end in ends) else None


def parts(
    a: PublishedArm, b: PublishedArm, assumed: Assumed, scope: Scope, case: Case, *, paired: bool, only: str = ""
) -> Parts:
    """Variance of the difference of two means, in the best, the plausible or the worst case of what is assumed.

    paired: both arms answered the same problems; otherwise their correlation is 0.
    only: the quantity of `Assumed` that alone is in this case, while the others are plausible; all of them if empty.
    """
    arms, retrained = (a, b), scope == "trainings"
    spread, correlation, run = (case if only in ("", name) else "plausible" for name in vars(assumed))
    (problem_I, answer_I), (problem_J, answer_J) = (arm.spread(spread) for arm in arms)
    # A reported deviation over runs includes that of the answers.
    answer_I, answer_J = (
        answer_M * (not retrained or arm.run_sd is None) for answer_M, arm in ((answer_I, a), (answer_J, b))
    )
    answer_K = np.add.outer(answer_I, answer_J).ravel()
    problem_K = np.zeros_like(answer_K)
    if scope != "answers":
        r = assumed.correlation[2 - CASES.index(correlation)] if paired else 0.0
        shared = 2 * r * np.sqrt(np.multiply.outer(problem_I, problem_J))
        problem_K = np.maximum(np.add.outer(problem_I, problem_J) - shared, 0.0).ravel()
    total_K = answer_K + problem_K
    chosen = int(total_K.argmax() if spread == "worst" else total_K.argmin())
    answers, problems = float(answer_K[chosen]), float(problem_K[chosen])
    if not retrained:
        return Parts(answers, problems, 0.0)
    sd = assumed.run_sd[CASES.index(run)]
    runs = sum((sd if arm.run_sd is None else arm.run_sd) ** 2 / arm.seeds for arm in arms)
    # Satterthwaite: only reported deviations are estimates; with these alone, this is Welch's test.
    doubt = sum((arm.run_sd**2 / arm.seeds) ** 2 / (arm.seeds - 1) for arm in arms if arm.run_sd is not None)
    return Parts(answers, problems, runs, (answers + problems + runs) ** 2 / doubt if doubt else math.inf)


def pooled(rows: Sequence[Parts], benchmarks: Sequence[str], models: Sequence[str], case: Case) -> Parts:
    """Variance of the mean of several differences.

    Differences of two models on one benchmark share its problems, and those of one model on two benchmarks share its
    training runs. The effect of sharing is unknown: none in the best and the plausible case, full in the worst.
    """
    square = len(rows) ** 2

    def shared(variances: Sequence[float], names: Sequence[str]) -> float:
        groups = np.unique(names, return_inverse=True)[1] if case == "worst" else np.arange(len(rows))
        return float((np.bincount(groups, np.sqrt(variances)) ** 2).sum()) / square

    answers = sum(row.answers for row in rows) / square
    problems, runs = shared([row.problems for row in rows], benchmarks), shared([row.runs for row in rows], models)
    doubt = sum(row.error**4 / row.df for row in rows) / square**2
    return Parts(answers, problems, runs, (answers + problems + runs) ** 2 / doubt if doubt else math.inf)


def problems_needed(effect: float, found: Parts, problems: int, share: float = 1.0) -> int | None:
    """The number of problems that find `effect` at level .05 with probability .8; None above MOST.

    found: of a design with `problems`. share: its number of training runs as a share of that which is planned.
    """
    left = (effect / noncentrality(math.inf)) ** 2 - found.runs * share
    number = problems * (found.problems + found.answers * share) / left if left > 0 else math.inf
    return max(math.ceil(number - ROUNDING), problems) if number <= MOST else None


def multiple(value: float, of: int, unit: float) -> int | None:
    """The m for which m / of prints as `value`, rounded or truncated to multiples of `unit`; None without one."""
    tried = (round(value * of), math.floor(value * of), math.ceil(value * of))
    return next((m for m in tried if -unit / 2 - ROUNDING <= m / of - value < unit - ROUNDING), None)


def _grid(bounds: Range) -> Floats:
    return np.union1d(np.linspace(bounds[0], bounds[2], GRID), [bounds[1]])


def _nearest(value_M: Floats, wanted: float) -> int:
    return int(np.abs(value_M - wanted).argmin())
