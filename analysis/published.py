"""Audit of the published numbers: what a cell with a pass@1 and a pass@8, and no counts, can be and can show.

Pure functions of `experiments/paper.yaml`. Counts per problem are not published, so every way in which the right
samples can lie on the problems is enumerated (`arrangements`), and what holds is given as a range over those that fit.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcpo_cli.statistics.stats import Floats

DIGIT = 1e-4
"""The last one that is printed."""
ROUNDING = 1e-9
"""Of floating-point numbers, below any printed digit."""
DRAWS = 1000
"""Of the bootstrap behind verl's best@k/mean."""
Z = 1.959964
METHOD = "MCPO"
Range = tuple[float, float]


@dataclass(frozen=True)
class Cell:
    """One published cell: problems of the benchmark, samples a problem, and the two numbers."""

    model: str
    arm: str
    benchmark: str
    problems: int
    samples: int
    pass_at_1: float
    pass_at_8: float


@dataclass(frozen=True)
class Arrangements:
    """All M multisets of counts c, one a problem, with a given number of right samples; means over the problems.

    best_M: of best@k = 1 - (1 - c/n)^k with k = n. best_square_M: of its square. square_M: of (c/n)^2.
    """

    best_M: Floats
    best_square_M: Floats
    square_M: Floats


@dataclass(frozen=True)
class Audit:
    """What one cell can be.

    right: number of right samples behind pass@1; None where it is no multiple of 1/(problems x samples). cut: whether
    its digits are cut where rounding would give others. any_of_8: whether pass@8 is a multiple of 1/problems, as the
    share of problems with a right sample is. arrangements: how many multisets of counts give that pass@1. best: the
    range of their best@8. reachable: share of the four-digit numbers in it that one of them gives. nearest: the one
    next to the published pass@8. exact: whether they agree to the digits. drawn: whether they do within two standard
    deviations (at most) of a bootstrap of DRAWS draws.
    sampling, problem, problem_at_8: standard errors over the arrangements that fit pass@8 within that: of pass@1 with
    the problems fixed, of pass@1 and of pass@8 with other problems of the kind.
    """

    cell: Cell
    right: int | None
    cut: bool
    any_of_8: bool
    arrangements: int
    best: Range
    reachable: float
    nearest: float
    exact: bool
    drawn: bool
    sampling: Range
    problem: Range
    problem_at_8: Range

    @property
    def estimator(self) -> str:
        """Which of the estimators under test can have given pass@8."""
        if self.any_of_8:
            return "any of 8"
        if self.exact:
            return "best@8"
        return "best@8, drawn" if self.drawn else "none of these"


@dataclass(frozen=True)
class Difference:
    """MCPO minus another arm. binomial, sampling, problem: half-widths of 95 % intervals, see `differences`."""

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
        """The smallest of the two sources of noise that can be the whole difference."""
        for noise, (low, high) in (("sampling", self.sampling), ("problem", self.problem)):
            if abs(self.value) <= low:
                return f"within {noise} noise"
            if abs(self.value) <= high:
                return f"{noise} noise may suffice"
        return "beyond both"


def rows(paper: Mapping[str, Any], table: str) -> Iterator[tuple[str, str, dict[tuple[str, str], float]]]:
    """Model, arm and the numbers by (benchmark, metric) of each published row of `table`, in the order printed."""
    benchmarks = paper["settings"]["evaluation"]["benchmarks"]
    for row in paper["tables"][table]["rows"]:
        numbers = {(name, metric): value for name in benchmarks for metric, value in row[name].items()}
        yield row["model"], row["arm"], numbers


def cells(paper: Mapping[str, Any]) -> list[Cell]:
    """The cells of all tables; a row that two tables print counts once."""
    evaluation = paper["settings"]["evaluation"]
    found = {(model, arm): numbers for table in paper["tables"] for model, arm, numbers in rows(paper, table)}
    return [
        Cell(model, arm, name, problems, evaluation["samples_per_problem"], *(row[name, f"pass@{k}"] for k in (1, 8)))
        for (model, arm), row in found.items()
        for name, problems in evaluation["benchmarks"].items()
    ]


def arrangements(problems: int, samples: int, right: int) -> Arrangements:
    """Every multiset of `problems` counts in 0..samples with the sum `right`.

    The rarer kind of sample is distributed, right or wrong: low counts and high ones are enumerated apart, joined where
    their sums add up and the problems suffice, and the other problems have none of it. Half a million for 30 problems.
    """
    total, counts_right = min(right, problems * samples - right), 2 * right <= problems * samples
    value = np.arange(samples + 1)
    best_V = 1 - ((samples - value if counts_right else value) / samples) ** samples
    gain_V3 = np.stack([best_V - best_V[0], best_V**2 - best_V[0] ** 2, (value / samples) ** 2], axis=1)
    middle = samples // 2
    halves = [
        _halves(values, problems, total, gain_V3) for values in (range(1, middle + 1), range(middle + 1, samples + 1))
    ]
    parts = [np.empty((0, 3))]
    for low, high in ((total - s, s) for s in halves[1] if total - s in halves[0]):
        (used_L, gain_L3), (used_H, gain_H3) = halves[0][low], halves[1][high]
        fits_LH = used_L[:, None] + used_H <= problems
        parts.append((gain_L3[:, None] + gain_H3)[fits_LH])
    best_M, best_square_M, square_M = np.concatenate(parts).T / problems
    if not counts_right:
        square_M = 1 - 2 * total / (problems * samples) + square_M
    return Arrangements(best_M + best_V[0], best_square_M + best_V[0] ** 2, square_M)


def _halves(
    values: Sequence[int], problems: int, total: int, gain_V3: Floats
) -> dict[int, tuple[NDArray[np.int64], Floats]]:
    """Multisets of `values`, by their sum up to `total`: how many problems they use, and their gains over zeros."""
    count_VK = np.indices([min(problems, total // value) + 1 for value in values]).reshape(len(values), -1)
    sum_K, used_K = np.asarray(values) @ count_VK, count_VK.sum(axis=0)
    keep_K = (used_K <= problems) & (sum_K <= total)
    sum_K, used_K, gain_K3 = sum_K[keep_K], used_K[keep_K], count_VK[:, keep_K].T @ gain_V3[list(values)]
    order = np.argsort(sum_K, kind="stable")
    sums, starts = np.unique(sum_K[order], return_index=True)
    groups = np.split(order, starts[1:])
    return {int(s): (used_K[group], gain_K3[group]) for s, group in zip(sums, groups, strict=True)}


def audit(cell: Cell) -> Audit:
    """Everything that the two numbers of a cell say about what gave them."""
    N, n = cell.problems, cell.samples
    right, any_of_8 = _multiple(cell.pass_at_1, N * n), _multiple(cell.pass_at_8, N) is not None
    if right is None:
        nothing = (math.nan, math.nan)
        return Audit(cell, None, False, any_of_8, 0, nothing, 0.0, math.nan, False, False, nothing, nothing, nothing)
    found = arrangements(N, n, right)
    distance_M = np.abs(found.best_M - cell.pass_at_8)
    nearest = int(distance_M.argmin())
    low, high = float(found.best_M.min()), float(found.best_M.max())
    # Every problem is drawn with the same random numbers, so errors need not average out over problems.
    noise = 2 * math.sqrt(cell.pass_at_8 * (1 - cell.pass_at_8) / DRAWS)
    fits_M = distance_M <= noise
    p, square_F = right / (N * n), found.square_M[fits_M]
    return Audit(
        cell,
        right,
        cut=p - cell.pass_at_1 > DIGIT / 2 + ROUNDING,
        any_of_8=any_of_8,
        arrangements=found.best_M.size,
        best=(low, high),
        reachable=np.unique(np.floor(found.best_M / DIGIT)).size / (high // DIGIT - low // DIGIT + 1),
        nearest=float(found.best_M[nearest]),
        exact=bool(_prints_as(found.best_M, cell.pass_at_8).any()),
        drawn=bool(distance_M[nearest] <= noise),
        sampling=_errors((p - square_F) / ((n - 1) * N)),
        problem=_errors((square_F - p**2) / (N - 1)),
        problem_at_8=_errors((found.best_square_M - found.best_M**2)[fits_M] / (N - 1)),
    )


def differences(audits: Sequence[Audit]) -> list[Difference]:
    """MCPO minus each other arm of the same model and benchmark, with what noise alone would give.

    binomial: other samples of problems that are all equally hard, the most that sampling can do to a pass@1.
    sampling: other samples of the same problems, over the arrangements that fit both cells. problem: other problems,
    drawn for each arm by itself; arms that find the same problems hard differ by less, at best by sampling alone.
    None of them has the noise between training runs. sampling and binomial are NaN for pass@8.
    """
    by_key = {(one.cell.model, one.cell.arm, one.cell.benchmark): one for one in audits}
    found: list[Difference] = []
    for (model, arm, benchmark), other in by_key.items():
        if arm != METHOD:
            found += _pair(by_key[model, METHOD, benchmark], other)
    return found


def _pair(method: Audit, other: Audit) -> Iterator[Difference]:
    about = (other.cell.model, other.cell.arm, other.cell.benchmark)
    unknown = (math.nan, math.nan)
    binomial = Z * math.hypot(*(_binomial(one.cell) for one in (method, other)))
    at_1, at_8 = (getattr(method.cell, name) - getattr(other.cell, name) for name in ("pass_at_1", "pass_at_8"))
    sampling, problem = _joined(method.sampling, other.sampling), _joined(method.problem, other.problem)
    yield Difference(*about, "pass@1", at_1, binomial, sampling, problem)
    yield Difference(*about, "pass@8", at_8, math.nan, unknown, _joined(method.problem_at_8, other.problem_at_8))


def _prints_as(exact: ArrayLike, value: float) -> NDArray[np.bool_]:
    """Whether four digits of `exact` are `value`, rounded or cut: both occur."""
    above: Floats = np.asarray(exact) - value
    return (above >= -DIGIT / 2 - ROUNDING) & (above < DIGIT - ROUNDING)


def _multiple(value: float, of: int) -> int | None:
    """m with m / of printed as `value`."""
    m = round(value * of)
    return m if _prints_as(m / of, value) else None


def _binomial(cell: Cell) -> float:
    return math.sqrt(cell.pass_at_1 * (1 - cell.pass_at_1) / (cell.problems * cell.samples))


def _errors(variance_F: Floats) -> Range:
    return (math.sqrt(variance_F.min()), math.sqrt(variance_F.max())) if variance_F.size else (math.nan, math.nan)


def _joined(one: Range, other: Range) -> Range:
    low, high = (Z * math.hypot(*errors) for errors in zip(one, other, strict=True))
    return low, high
