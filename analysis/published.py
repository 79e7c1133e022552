"""Audit of the published numbers: what a published pass@1 and pass@8 say without the counts per problem.

Pure functions of `experiments/paper.yaml`. Counts per problem are not published, so `arrangements` enumerates every way
to distribute the right samples over the problems; results are ranges over the arrangements that fit.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcpo_cli.statistics.stats import Floats

DIGIT = 1e-4
"""Unit of the paper's last printed digit."""
ROUNDING = 1e-9
"""Tolerance for floating-point errors, far below DIGIT."""
DRAWS, DRAW_SEED = 1000, 42
"""Bootstrap draws behind verl's best@k/mean, and the seed that verl sets anew for each problem
(`verl/trainer/ppo/metric_utils.py`, `bootstrap_metric`, verl 0.9.1)."""
Z = 1.959964
"""97.5% quantile of the normal distribution."""
NEAR = 0.01
"""How far from a published pass@8 another number is that could have been published in its place."""
METHOD = "MCPO"
Range = tuple[float, float]


@dataclass(frozen=True)
class Cell:
    """The two published numbers of one arm, model and benchmark."""

    model: str
    arm: str
    benchmark: str
    problems: int
    """Problems of the benchmark."""
    samples: int
    """Samples per problem."""
    pass_at_1: float
    pass_at_8: float


@dataclass(frozen=True)
class Arrangements:
    """Means over the problems for each of the M multisets of counts c, one count per problem, with a given sum.

    `drawn` is best@k as verl draws it (`drawn`); which of a problem's samples are right is not known, so it has a mean
    and a variance over their orders.
    """

    best_M: Floats
    """Mean of best@k = 1 - (1 - c/n)^k with k = n."""
    best_square_M: Floats
    """Mean of the square of best@k."""
    square_M: Floats
    """Mean of (c/n)^2."""
    drawn_M: Floats
    """Mean of the expected draw of verl's."""
    drawn_variance_M: Floats
    """Mean of the variance of a problem's draw."""


@dataclass(frozen=True)
class Audit:
    """What one cell can be. Fitting arrangements give its pass@1, and its pass@8 within the error of verl's draws."""

    cell: Cell
    right: int | None
    """Right samples behind pass@1; None if pass@1 is not a multiple of 1/(problems x samples)."""
    cut: bool
    """Whether the digits of pass@1 are truncated where rounding would print others."""
    any_of_8: bool
    """Whether pass@8 is a multiple of 1/problems, as the share of problems with a right sample is."""
    arrangements: int
    """Number of multisets of counts that give this pass@1."""
    best: Range
    """Range of best@8 over these multisets."""
    reachable: float
    """Share of the four-digit numbers within NEAR of pass@8 (and within `best`) that some multiset gives."""
    nearest: float
    """The best@8 of a multiset that is nearest to the published pass@8."""
    drawn: bool
    """Whether some arrangement, drawn as verl does, comes within two standard deviations of pass@8."""
    draw_error: float
    """Standard deviation of best@8 as verl draws it, of the arrangement nearest to pass@8."""
    square: Range
    """Range of the mean of (c/n)^2 over the fitting arrangements."""
    sampling: Range
    """Standard error of pass@1 with the problems fixed, over the fitting arrangements."""
    problem: Range
    """Standard error of pass@1 with other problems of the same kind, over the fitting arrangements."""
    problem_at_8: Range
    """As `problem`, for pass@8."""

    @property
    def estimator(self) -> str:
        """The tested estimator that can have given pass@8."""
        if self.any_of_8:
            return "any of 8"
        return "best@8" if self.drawn else "none of these"


@dataclass(frozen=True)
class Difference:
    """MCPO minus another arm, with half-widths of 95% intervals for three sources of noise (see `differences`)."""

    model: str
    arm: str
    benchmark: str
    metric: str
    value: float
    binomial: float
    sampling: Range
    problem: Range

    @property
    def verdict(self) -> str:
        """The smaller of the two noise sources (samples, problems) that can explain the whole difference."""
        for noise, (low, high) in (("sampling", self.sampling), ("problem", self.problem)):
            if abs(self.value) <= low:
                return f"within {noise} noise"
            if abs(self.value) <= high:
                return f"{noise} noise may suffice"
        return "beyond both"


def rows(paper: Mapping[str, Any], table: str) -> Iterator[tuple[str, str, dict[tuple[str, str], float]]]:
    """Each published row of `table` in printed order: model, arm, and its numbers by (benchmark, metric)."""
    benchmarks = paper["settings"]["evaluation"]["benchmarks"]
    for row in paper["tables"][table]["rows"]:
        numbers = {(name, metric): value for name in benchmarks for metric, value in row[name].items()}
        yield row["model"], row["arm"], numbers


def cells(paper: Mapping[str, Any]) -> list[Cell]:
    """The cells of all tables; a row printed in two tables counts once."""
    evaluation = paper["settings"]["evaluation"]
    unique = {(model, arm): numbers for table in paper["tables"] for model, arm, numbers in rows(paper, table)}
    return [
        Cell(model, arm, name, problems, evaluation["samples_per_problem"], *(row[name, f"pass@{k}"] for k in (1, 8)))
        for (model, arm), row in unique.items()
        for name, problems in evaluation["benchmarks"].items()
    ]


def arrangements(problems: int, samples: int, right: int) -> Arrangements:
    """Every multiset of `problems` counts in 0..samples with the sum `right`.

    The algorithm distributes the rarer kind of sample, right or wrong. It enumerates low counts and high counts
    separately and joins the pairs whose sums add up and which need no more than `problems` problems; the remaining
    problems have a count of 0. 30 problems give half a million multisets.
    """
    total, counts_right = min(right, problems * samples - right), 2 * right <= problems * samples
    value = np.arange(samples + 1)
    right_V = value if counts_right else samples - value
    best_V = 1 - ((samples - right_V) / samples) ** samples
    drawn_V, variance_V = (column[right_V] for column in drawn(samples))
    of_V5 = np.stack([best_V, best_V**2, (value / samples) ** 2, drawn_V, variance_V], axis=1)
    gain_V5 = of_V5 - of_V5[0]
    middle = samples // 2
    halves = [
        _halves(values, problems, total, gain_V5) for values in (range(1, middle + 1), range(middle + 1, samples + 1))
    ]
    parts = [np.empty((0, 5))]
    for low, high in ((total - s, s) for s in halves[1] if total - s in halves[0]):
        (used_L, gain_L5), (used_H, gain_H5) = halves[0][low], halves[1][high]
        fits_LH = used_L[:, None] + used_H <= problems
        parts.append((gain_L5[:, None] + gain_H5)[fits_LH])
    best_M, best_square_M, square_M, drawn_M, variance_M = (np.concatenate(parts) / problems + of_V5[0]).T
    if not counts_right:
        square_M = 1 - 2 * total / (problems * samples) + square_M
    return Arrangements(best_M, best_square_M, square_M, drawn_M, variance_M)


@cache
def drawn(samples: int) -> tuple[Floats, Floats]:
    """best@k as verl draws it, k = `samples`, for each number c of right samples: its mean and variance over orders.

    verl draws DRAWS times with DRAW_SEED, so every problem gets the same positions, and the value depends on which c
    of the samples are right. All 2^samples patterns are enumerated; the orders of exchangeable samples are equally
    likely, and independent from problem to problem.
    """
    position_DK = np.random.RandomState(DRAW_SEED).choice(samples, size=(DRAWS, samples), replace=True)
    right_OS = (np.arange(2**samples)[:, None] >> np.arange(samples) & 1).astype(bool)
    value_O, count_O = right_OS[:, position_DK].any(-1).mean(-1), right_OS.sum(-1)
    by_count = [value_O[count_O == count] for count in range(samples + 1)]
    return np.array([values.mean() for values in by_count]), np.array([values.var() for values in by_count])


def _halves(
    values: Sequence[int], problems: int, total: int, gain_V5: Floats
) -> dict[int, tuple[NDArray[np.int64], Floats]]:
    """Multisets of `values` by their sum (at most `total`): problems that each uses, and its gain over all zeros."""
    count_VK = np.indices([min(problems, total // value) + 1 for value in values]).reshape(len(values), -1)
    sum_K, used_K = np.asarray(values) @ count_VK, count_VK.sum(axis=0)
    keep_K = (used_K <= problems) & (sum_K <= total)
    sum_K, used_K, gain_K5 = sum_K[keep_K], used_K[keep_K], count_VK[:, keep_K].T @ gain_V5[list(values)]
    order = np.argsort(sum_K, kind="stable")
    sums, starts = np.unique(sum_K[order], return_index=True)
    groups = np.split(order, starts[1:])
    return {int(s): (used_K[group], gain_K5[group]) for s, group in zip(sums, groups, strict=True)}


def audit(cell: Cell) -> Audit:
    """Derive what the two numbers of a cell say about the samples behind them."""
    N, n = cell.problems, cell.samples
    right, any_of_8 = _multiple(cell.pass_at_1, N * n), _multiple(cell.pass_at_8, N) is not None
    if right is None:
        nothing = (math.nan, math.nan)
        return Audit(
            *(cell, None, False, any_of_8, 0, nothing, 0.0, math.nan, False, math.nan),
            *(nothing, nothing, nothing, nothing),
        )
    all_M = arrangements(N, n, right)
    nearest = int(np.abs(all_M.best_M - cell.pass_at_8).argmin())
    low, high = float(all_M.best_M.min()), float(all_M.best_M.max())
    error_M = np.sqrt(all_M.drawn_variance_M / N)
    fits_M = np.abs(all_M.drawn_M - cell.pass_at_8) <= 2 * error_M + DIGIT
    p, square_F = right / (N * n), all_M.square_M[fits_M]
    return Audit(
        cell,
        right,
        cut=p - cell.pass_at_1 > DIGIT / 2 + ROUNDING,
        any_of_8=any_of_8,
        arrangements=all_M.best_M.size,
        best=(low, high),
        reachable=_reachable(all_M.best_M, cell.pass_at_8),
        nearest=float(all_M.best_M[nearest]),
        drawn=bool(fits_M.any()),
        draw_error=float(error_M[nearest]),
        square=(float(square_F.min()), float(square_F.max())) if square_F.size else (math.nan, math.nan),
        sampling=_errors((p - square_F) / ((n - 1) * N)),
        problem=_errors((square_F - p**2) / (N - 1)),
        problem_at_8=_errors((all_M.best_square_M - all_M.best_M**2)[fits_M] / (N - 1)),
    )


def differences(audits: Sequence[Audit]) -> list[Difference]:
    """MCPO minus each other arm of the same model and benchmark, with half-widths of 95% intervals for noise.

    binomial assumes that all problems are equally hard: the most that other samples can change a pass@1. sampling is
    other samples of the same problems, a range over the arrangements that fit both cells. problem is other problems,
    drawn separately for each arm; arms that find the same problems hard differ by less, at best by sampling alone.
    No half-width includes noise between training runs. sampling and binomial are NaN for pass@8.
    """
    by_key = {(one.cell.model, one.cell.arm, one.cell.benchmark): one for one in audits}
    pairs: list[Difference] = []
    for (model, arm, benchmark), other in by_key.items():
        if arm != METHOD:
            pairs += _pair(by_key[model, METHOD, benchmark], other)
    return pairs


def _pair(method: Audit, other: Audit) -> Iterator[Difference]:
    about = (other.cell.model, other.cell.arm, other.cell.benchmark)
    unknown = (math.nan, math.nan)
    binomial = Z * math.hypot(*(_binomial(one.cell) for one in (method, other)))
    at_1, at_8 = (getattr(method.cell, name) - getattr(other.cell, name) for name in ("pass_at_1", "pass_at_8"))
    sampling, problem = _joined(method.sampling, other.sampling), _joined(method.problem, other.problem)
    yield Difference(*about, "pass@1", at_1, binomial, sampling, problem)
    yield Difference(*about, "pass@8", at_8, math.nan, unknown, _joined(method.problem_at_8, other.problem_at_8))


def _prints_as(exact: ArrayLike, value: float) -> NDArray[np.bool_]:
    """Whether `exact`, rounded or truncated to four digits, is `value`; the paper does both."""
    above: Floats = np.asarray(exact) - value
    return (above >= -DIGIT / 2 - ROUNDING) & (above < DIGIT - ROUNDING)


def _reachable(best_M: Floats, value: float) -> float:
    """Share of the four-digit numbers within NEAR of `value` that some of `best_M` prints as, rounded or truncated."""
    printed = np.union1d(np.floor(best_M / DIGIT + ROUNDING), np.rint(best_M / DIGIT))
    low, high = max(value - NEAR, best_M.min()), min(value + NEAR, best_M.max())
    numbers = np.arange(math.ceil(low / DIGIT), math.floor(high / DIGIT) + 1)
    return float(np.isin(numbers, printed).mean()) if numbers.size else 0.0


def _multiple(value: float, of: int) -> int | None:
    """The m for which m / of prints as `value`; None if there is none."""
    m = round(value * of)
    return m if _prints_as(m / of, value) else None


def _binomial(cell: Cell) -> float:
    return math.sqrt(cell.pass_at_1 * (1 - cell.pass_at_1) / (cell.problems * cell.samples))


def _errors(variance_F: Floats) -> Range:
    return (math.sqrt(variance_F.min()), math.sqrt(variance_F.max())) if variance_F.size else (math.nan, math.nan)


def _joined(one: Range, other: Range) -> Range:
    low, high = (Z * math.hypot(*errors) for errors in zip(one, other, strict=True))
    return low, high
