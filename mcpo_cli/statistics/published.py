"""The error of the difference of two published means about which little else is known.

A response of arm a to problem p in training run s is correct with probability mean_a + problem_ap + run_as. Numbers
that are not published have to be assumed, within a range:

    spread       variance of problem_ap, as a share of m (1 - m), m the mean: 0 if all problems are equally hard, 1 if
                 each is always or never solved
    correlation  of problem_ap of the two arms over the problems
    run_sd       standard deviation of run_as

The error of a difference has three scopes, each including the one before it: other `answers` to the same problems,
other `problems` of the same kind, other `trainings` with the same recipes. A term of run x problem is left out; if a
standard deviation over runs is reported, it includes that term, the run's and the answers'.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from scipy import optimize

from mcpo_cli.statistics import stats
from mcpo_cli.statistics.power import noncentrality
from mcpo_cli.statistics.stats import ROUNDING, Floats

Scope = Literal["answers", "problems", "trainings"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
Case = Literal["best", "plausible", "worst"]
CASES: tuple[Case, ...] = get_args(Case)
Range = tuple[float, float, float]
"""The least, the plausible and the largest value."""
GRID = 9
"""Values of a spread that are tried between its bounds."""
MOST = 1_000_000
"""Largest number of problems, seeds or samples that `needed` names."""
SLACK = 1e-6
"""Tolerance of a number of samples: far below one."""
DESIGNS = (1, 3, 5, 10)
"""Numbers of training seeds for which `designs` gives the number of problems needed."""


@dataclass(frozen=True)
class Assumed:
    """Ranges of unpublished quantities, each of three increasing numbers."""

    spread: Range = (0.3, 0.6, 0.8)
    """Range for binary pass@1 of language models on mathematics; a second number of the same samples narrows it."""
    correlation: Range = (0.5, 0.8, 1.0)
    """Two fine-tunings of one model are usually at .8 to 1."""
    run_sd: Range = (0.0, 0.01, 0.02)
    """In shares."""


@dataclass(frozen=True)
class Spread:
    """Possible pairs of an arm's two variances of a score, and the index of the plausible pair."""

    problem_M: Floats
    """Variance of the true accuracies of problems."""
    answer_M: Floats
    """Variance of a single answer, on average over problems."""
    plausible: int

    @property
    def middle(self) -> "Spread":
        """The plausible pair alone."""
        chosen = slice(self.plausible, self.plausible + 1)
        return Spread(self.problem_M[chosen], self.answer_M[chosen], 0)


@dataclass(frozen=True)
class Mean:
    """A published mean of one arm."""

    value: float
    problems: int
    sets: float
    """Values of the metric behind one problem of one run: samples, or sets of k samples for pass@k."""
    seeds: int
    spread: Spread
    run_sd: float | None = None
    """Reported standard deviation of a run's mean over `seeds` runs."""


@dataclass(frozen=True)
class Parts:
    """Variance of a difference by source; 0 if the scope leaves it out."""

    answers: float
    problems: float
    runs: float
    df: float = math.inf
    """Degrees of freedom of the whole; infinite if every part is assumed rather than estimated."""

    @property
    def error(self) -> float:
        """Standard error."""
        return math.sqrt(self.answers + self.problems + self.runs)


def assumed_spread(value: float, assumed: Range) -> Spread:
    """The pairs of variances of a binary score whose mean is `value`, over the range that is assumed."""
    whole, share_M = value * (1 - value), _grid(assumed)
    return Spread(share_M * whole, (1 - share_M) * whole, _nearest(share_M, assumed[1]))


def spread_of_error(value: float, error: float, problems: int, sets: float) -> Spread:
    """The pair of variances behind a reported standard error over problems of one run: there is only one.

    Raises:
        ValueError: one set per problem, whose error follows from the mean.
    """
    if sets <= 1:
        raise ValueError("the error of one answer a problem follows from the mean")
    whole = value * (1 - value)
    problem = min(max((problems * error**2 - whole / sets) / (1 - 1 / sets), 0.0), whole)
    return Spread(np.array([problem]), np.array([whole - problem]), 0)


def spread_of_squares(value: float, square: tuple[float, float], problems: int, samples: int, assumed: Range) -> Spread:
    """The pairs of variances whose counts have a mean square of (c/n) in the range `square` (see `mean_square`).

    Both are unbiased for these problems and samples: that of an answer is n/(n - 1) times the mean of
    (c/n)(1 - c/n), and that of problems is the rest of the variance of c/n over the problems.
    """
    square_M = _grid((square[0], sum(square) / 2, square[1]))
    answer_M = (value - square_M) * samples / (samples - 1)
    problem_M = np.maximum((square_M - value**2) * problems / (problems - 1) - answer_M / samples, 0.0)
    whole = max(value * (1 - value), ROUNDING)
    return Spread(problem_M, answer_M, _nearest(problem_M / whole, assumed[1]))


def mean_square(
    problems: int, samples: int, mean: float, other: float, k: int, kind: str, tolerance: tuple[float, float]
) -> tuple[float, float] | None:
    """Range of the mean over problems of (c/n)^2, for counts c of n samples that give two published numbers.

    An integer program over the numbers of problems with each count.

    Args:
        mean: of c/n. other: the mean of pass@k (`kind` "pass") or best@k ("best") of the same samples.
        tolerance: how far from `mean` and `other` the true numbers can be.

    Returns:
        The range; None if no counts give both numbers.
    """
    count_C = np.arange(samples + 1)
    share_C = count_C / samples
    other_C = np.asarray((stats.pass_at_k if kind == "pass" else stats.best_at_k)(samples, count_C, k))
    rows = np.array([np.ones(samples + 1), count_C, other_C])
    low, high = (
        np.array([1.0, (mean + sign * tolerance[0]) * samples, other + sign * tolerance[1]]) * problems
        for sign in (-1, 1)
    )
    # Whole numbers of problems and of samples are exact, so that the solver need not repair a solution.
    low[:2], high[:2] = np.ceil(low[:2] - SLACK), np.floor(high[:2] + SLACK)
    found = []
    for sign in (1, -1):
        result = optimize.milp(
            sign * share_C**2,
            constraints=optimize.LinearConstraint(rows, low, high),
            integrality=np.ones(samples + 1, dtype=np.int64),
            bounds=optimize.Bounds(0, problems),
        )
        if not result.success:
            return None
        found.append(float(share_C**2 @ np.rint(result.x)) / problems)
    return found[0], found[1]


def parts(one: Mean, other: Mean, assumed: Assumed, scope: Scope, case: Case, *, paired: bool) -> Parts:
    """Variance of the difference of two means, in the best, the plausible or the worst case of what is assumed.

    paired: both arms answered the same problems; otherwise their correlation is 0.
    """
    at = CASES.index(case)
    reported = scope == "trainings"
    if case == "plausible":
        a, b = one.spread.middle, other.spread.middle
    else:
        a, b = one.spread, other.spread
    answer_K = np.add.outer(*(_answers(mean, spread, reported) for mean, spread in ((one, a), (other, b)))).ravel()
    problem_K = np.zeros_like(answer_K)
    if scope != "answers":
        correlation = assumed.correlation[2 - at] if paired else 0.0
        problem_K = _problems(a.problem_M / one.problems, b.problem_M / other.problems, correlation)
    total_K = answer_K + problem_K
    chosen = int(total_K.argmax() if case == "worst" else total_K.argmin())
    runs = [_run(mean, assumed.run_sd[at]) if reported else 0.0 for mean in (one, other)]
    found = Parts(float(answer_K[chosen]), float(problem_K[chosen]), sum(runs))
    return Parts(found.answers, found.problems, found.runs, _df(found.error**2, (one, other)) if reported else math.inf)


def pooled(found: Sequence[Parts], benchmarks: Sequence[str], models: Sequence[str], case: Case) -> Parts:
    """Variance of the mean of several differences.

    Differences of two models on one benchmark share its problems, and those of one model on two benchmarks share its
    training runs. The effect of sharing is unknown: none in the best and the plausible case, full in the worst.
    """
    count = len(found)
    problems, runs = (
        _joined([getattr(one, name) for one in found], names, together=case == "worst") / count**2
        for name, names in (("problems", benchmarks), ("runs", models))
    )
    doubt = sum((one.error / count) ** 4 / one.df for one in found)
    whole = Parts(sum(one.answers for one in found) / count**2, problems, runs)
    return Parts(whole.answers, problems, runs, whole.error**4 / doubt if doubt else math.inf)


def detectable(found: Parts) -> float:
    """The smallest difference that a two-sided test at level .05 finds with probability .8."""
    return found.error * noncentrality(found.df)


def needed(effect: float, found: Parts, problems: int, seeds: int, sets: float) -> dict[str, int | None]:
    """Numbers of problems, seeds or sets of samples that find `effect`, the other two fixed; None if none does.

    found: of the design with these numbers.
    """
    whole = (effect / noncentrality(math.inf)) ** 2
    shared = {
        "problems": (problems, found.problems + found.answers),
        "seeds": (seeds, found.runs + found.answers),
        "samples": (sets, found.answers),
    }
    numbers: dict[str, int | None] = {}
    for name, (now, own) in shared.items():
        left = whole - (found.error**2 - own)
        number = math.ceil(now * own / left - ROUNDING) if left > 0 else MOST + 1
        numbers[name] = max(number, math.ceil(now)) if number <= MOST else None
    return numbers


def designs(effect: float, found: Parts, problems: int, seeds: int, sets: float) -> dict[int, int | None]:
    """Number of problems that find `effect` with each number of seeds of DESIGNS; arguments as in `needed`."""
    numbers = {}
    for number in DESIGNS:
        share = seeds / number
        scaled = replace(found, answers=found.answers * share, runs=found.runs * share)
        numbers[number] = needed(effect, scaled, problems, number, sets)["problems"]
    return numbers


def multiple(value: float, of: int, unit: float) -> int | None:
    """The m for which m / of prints as `value`, rounded or truncated to multiples of `unit`; None without one."""
    for m in (round(value * of), math.floor(value * of), math.ceil(value * of)):
        if -unit / 2 - ROUNDING <= m / of - value < unit - ROUNDING:
            return m
    return None


def _grid(bounds: Range) -> Floats:
    return np.union1d(np.linspace(bounds[0], bounds[2], GRID), [bounds[1]])


def _nearest(value_M: Floats, wanted: float) -> int:
    return int(np.abs(value_M - wanted).argmin())


def _answers(mean: Mean, spread: Spread, reported: bool) -> Floats:
    if reported and mean.run_sd is not None:
        return np.zeros_like(spread.answer_M)
    return spread.answer_M / (mean.problems * mean.sets * mean.seeds)


def _problems(one_I: Floats, other_J: Floats, correlation: float) -> Floats:
    shared = 2 * correlation * np.sqrt(np.multiply.outer(one_I, other_J))
    return np.maximum(np.add.outer(one_I, other_J) - shared, 0.0).ravel()


def _run(mean: Mean, assumed: float) -> float:
    return (assumed if mean.run_sd is None else mean.run_sd) ** 2 / mean.seeds


def _df(variance: float, means: Sequence[Mean]) -> float:
    """Satterthwaite's degrees of freedom: only reported deviations are estimates (with these alone, Welch's test)."""
    doubt = sum(_run(mean, 0.0) ** 2 / (mean.seeds - 1) for mean in means if mean.run_sd is not None)
    return variance**2 / doubt if doubt else math.inf


def _joined(variances: Sequence[float], names: Sequence[str], *, together: bool) -> float:
    if not together:
        return sum(variances)
    groups: dict[str, float] = {}
    for variance, name in zip(variances, names, strict=True):
        groups[name] = groups.get(name, 0.0) + math.sqrt(variance)
    return sum(total**2 for total in groups.values())
