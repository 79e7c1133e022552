"""Audit of the published tables: what a pass@1 and a pass@8 without counts per problem can be, and mean.

`python -m mcpo_cli.study.experiments.audit` reads `PAPER` and writes `experiments/results/audit.csv`.
Counts per problem are not published, so `arrangements` enumerates every way to distribute the correct samples over the
problems, and results are ranges over the arrangements that fit. No half-width or standard error includes the noise
between training seeds, which can only add to it.

Rows of the file, by `block`:
    cell: what one published pair of numbers can be. `right`: correct samples behind pass@1. `nearest_best_at_8`: the
        best@8 nearest to pass@8. `reachable`: share of the four-digit numbers near pass@8 that some arrangement gives;
        near 1, agreement to the digit is no evidence.
    difference: MCPO minus another arm, and half-widths of 95 % normal intervals for three sources of noise.
    pooled: MCPO minus DAPO in pass@1, averaged over all cells, against one source of noise per row.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from mcpo_cli.config.reading import PAPER, read_yaml
from mcpo_cli.statistics.stats import Floats
from mcpo_cli.study import EXPERIMENTS

DIGIT = 1e-4
"""Unit of the paper's last printed digit."""
ROUNDING = 1e-9
"""Tolerance for floating-point errors, far below DIGIT."""
DRAWS, DRAW_SEED = 1000, 42
"""Bootstrap draws behind verl's best@k/mean, and the seed that verl sets anew for each problem
(`verl/trainer/ppo/metric_utils.py`, `bootstrap_metric`, verl 0.9.1)."""
Z = 1.959964
"""97.5 % quantile of the normal distribution."""
NEAR = 0.01
"""How far from a published pass@8 another number is that could have been published in its place."""
METHOD, BASELINE = "MCPO", "DAPO"
CORRELATIONS = (0.0, 0.5, 0.8, 0.9, 1.0)
"""Correlations, over problems, of the two arms' true accuracies; the paper does not publish it."""
Range = tuple[float, float]
UNKNOWN: Range = (math.nan, math.nan)


@dataclass(frozen=True)
class Cell:
    """The two published numbers of one arm, model and benchmark."""

    model: str
    arm: str
    benchmark: str
    problems: int
    samples: int
    """Samples per problem."""
    pass_at_1: float
    pass_at_8: float


@dataclass(frozen=True)
class Audit:
    """Facts about one cell. Fitting arrangements give its pass@1, and its pass@8 within the error of verl's draws."""

    cell: Cell
    right: int | None
    """Correct samples behind pass@1; None if pass@1 is not a multiple of 1/(problems x samples)."""
    any_of_8: bool = False
    """Whether pass@8 is a multiple of 1/problems, as the share of problems with a correct sample is."""
    arrangements: int = 0
    """Number of multisets of counts that give this pass@1."""
    best: Range = UNKNOWN
    """Range of best@8 over these multisets."""
    reachable: float = 0.0
    """Share of the four-digit numbers within NEAR of pass@8 (and within `best`) that some multiset gives."""
    nearest: float = math.nan
    """The best@8 of a multiset that is nearest to the published pass@8."""
    drawn: bool = False
    """Whether some arrangement, drawn as verl does, comes within two standard deviations of pass@8."""
    draw_error: float = math.nan
    """Standard deviation of best@8 as verl draws it, of the arrangement nearest to pass@8."""
    square: Range = UNKNOWN
    """Range of the mean of (c/n)^2 over the fitting arrangements."""
    sampling: Range = UNKNOWN
    """Standard error of pass@1 with the problems fixed, over the fitting arrangements."""
    problem: Range = UNKNOWN
    """Standard error of pass@1 with other problems of the same kind, over the fitting arrangements."""
    problem_at_8: Range = UNKNOWN
    """As `problem`, for pass@8."""

    @property
    def estimator(self) -> str:
        """The tested estimator that can have given pass@8."""
        if self.any_of_8:
            return "any of 8"
        return "best@8" if self.drawn else "none of these"


@dataclass(frozen=True)
class Difference:
    """METHOD minus another arm, with half-widths of 95 % intervals for three sources of noise (see `differences`)."""

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


@dataclass(frozen=True)
class Pooled:
    """METHOD minus BASELINE in pass@1, averaged over all cells of both models, against one source of noise.

    Ranges are over the counts that fit.
    """

    difference: float
    cells: int
    positive: int
    """Number of cells in which METHOD has the higher pass@1."""
    source: str
    correlation: float
    """NaN if the problems stay the same."""
    error: Range
    """Standard error of the pooled difference."""
    z: Range
    """The difference in standard errors."""


def cells(paper: Mapping[str, Any]) -> list[Cell]:
    """The cells of all tables; a row printed in two tables counts once. paper: `mcpo_cli/conf/paper.yaml`."""
    evaluation = paper["settings"]["evaluation"]
    rows = {(row["model"], row["arm"]): row for table in paper["tables"].values() for row in table["rows"]}
    return [
        Cell(model, arm, name, problems, evaluation["samples_per_problem"], *(row[name][f"pass@{k}"] for k in (1, 8)))
        for (model, arm), row in rows.items()
        for name, problems in evaluation["benchmarks"].items()
    ]


def arrangements(problems: int, samples: int, right: int) -> Floats:
    """Means over the problems for every multiset of `problems` counts c in 0..samples with the sum `right`.

    The algorithm distributes the rarer kind of sample, correct or incorrect. It enumerates low counts and high counts
    separately and joins the pairs whose sums add up and which need no more than `problems` problems; the remaining
    problems have a count of 0. 30 problems give half a million multisets.

    Returns:
        5 x multisets: the means of best@k = 1 - (1 - c/n)^k with k = n, of its square, of (c/n)^2, of verl's expected
        draw of best@k, and of that draw's variance (`drawn`).
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
    mean_5M: Floats = (np.concatenate(parts) / problems + of_V5[0]).T
    if not counts_right:
        mean_5M[2] += 1 - 2 * total / (problems * samples)
    return mean_5M


@cache
def drawn(samples: int) -> tuple[Floats, Floats]:
    """best@k as verl draws it, k = `samples`, for each number c of correct samples: its mean and variance over orders.

    verl draws DRAWS times with DRAW_SEED, so every problem gets the same positions, and the value depends on which c
    of the samples are correct. All 2^samples patterns are enumerated; the orders of exchangeable samples are equally
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
        return Audit(cell, None, any_of_8=any_of_8)
    best_M, best_square_M, square_M, drawn_M, variance_M = arrangements(N, n, right)
    nearest = int(np.abs(best_M - cell.pass_at_8).argmin())
    error_M = np.sqrt(variance_M / N)
    fits_M = np.abs(drawn_M - cell.pass_at_8) <= 2 * error_M + DIGIT
    p, square_F = right / (N * n), square_M[fits_M]
    return Audit(
        cell,
        right,
        any_of_8=any_of_8,
        arrangements=best_M.size,
        best=(float(best_M.min()), float(best_M.max())),
        reachable=_reachable(best_M, cell.pass_at_8),
        nearest=float(best_M[nearest]),
        drawn=bool(fits_M.any()),
        draw_error=float(error_M[nearest]),
        square=(float(square_F.min()), float(square_F.max())) if square_F.size else UNKNOWN,
        sampling=_errors((p - square_F) / ((n - 1) * N)),
        problem=_errors((square_F - p**2) / (N - 1)),
        problem_at_8=_errors((best_square_M - best_M**2)[fits_M] / (N - 1)),
    )


def differences(audits: Sequence[Audit]) -> list[Difference]:
    """METHOD minus each other arm of the same model and benchmark, with half-widths of 95 % intervals for noise.

    binomial assumes that all problems are equally hard: the most that other samples can change a pass@1. sampling is
    other samples of the same problems, a range over the arrangements that fit both cells. problem is other problems,
    drawn separately for each arm; arms that find the same problems hard differ by less, at best by sampling alone.
    sampling and binomial are NaN for pass@8.
    """
    by_key = {(one.cell.model, one.cell.arm, one.cell.benchmark): one for one in audits}
    pairs: list[Difference] = []
    for (model, arm, benchmark), other in by_key.items():
        if arm != METHOD:
            pairs += _pair(by_key[model, METHOD, benchmark], other)
    return pairs


def _pair(method: Audit, other: Audit) -> Iterator[Difference]:
    about = (other.cell.model, other.cell.arm, other.cell.benchmark)
    variances = (c.pass_at_1 * (1 - c.pass_at_1) / (c.problems * c.samples) for c in (method.cell, other.cell))
    binomial = Z * math.sqrt(sum(variances))
    at_1, at_8 = (getattr(method.cell, name) - getattr(other.cell, name) for name in ("pass_at_1", "pass_at_8"))
    sampling, problem = _joined(method.sampling, other.sampling), _joined(method.problem, other.problem)
    yield Difference(*about, "pass@1", at_1, binomial, sampling, problem)
    yield Difference(*about, "pass@8", at_8, math.nan, UNKNOWN, _joined(method.problem_at_8, other.problem_at_8))


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
    """The m for which m / of prints as `value`; None if no m does."""
    m = round(value * of)
    return m if _prints_as(m / of, value) else None


def _errors(variance_F: Floats) -> Range:
    return (math.sqrt(variance_F.min()), math.sqrt(variance_F.max())) if variance_F.size else UNKNOWN


def _joined(one: Range, other: Range) -> Range:
    low, high = (Z * math.hypot(*errors) for errors in zip(one, other, strict=True))
    return low, high


def pool(audits: Sequence[Audit]) -> list[Pooled]:
    """Test the average difference of the cells that METHOD and BASELINE share.

    A cell's variance has two parts. Other samples of the same problems: S = sum over the arms of (p - q)/((n - 1) N),
    where q is the mean of (c/n)^2 over the N problems. Other problems: T = (t_a + t_b - 2 r sqrt(t_a t_b)) / N with an
    arm's variance of true accuracies t = (q - p^2) N/(N - 1) - (p - q)/(n - 1) and their correlation r. With r = 0 the
    arms' problems might as well be different ones; r = 1 and equal t leave S alone. Differences of the two models on
    one benchmark are correlated by at least 0 and at most 1.
    """
    by_key = {(one.cell.benchmark, one.cell.model, one.cell.arm): one for one in audits}
    pairs: dict[str, list[tuple[Audit, Audit]]] = {}
    for (benchmark, model, arm), other in by_key.items():
        if arm == BASELINE:
            pairs.setdefault(benchmark, []).append((by_key[benchmark, model, METHOD], other))
    found = [a.cell.pass_at_1 - b.cell.pass_at_1 for models in pairs.values() for a, b in models]
    mean, count, positive = float(np.mean(found)), len(found), sum(value > 0 for value in found)
    pooled = []
    for source, correlation in (
        ("other samples of the same problems", math.nan),
        *(("other problems and samples", r) for r in CORRELATIONS),
    ):
        bounds = [variance(models, correlation) for models in pairs.values()]
        low, high = (math.sqrt(sum(variances)) / count for variances in zip(*bounds, strict=True))
        pooled.append(Pooled(mean, count, positive, source, correlation, (low, high), (mean / high, mean / low)))
    return pooled


def variance(models: Sequence[tuple[Audit, Audit]], correlation: float) -> Range:
    """The least and the largest variance of the sum of the models' differences on one benchmark."""
    parts = [_parts(*pair, correlation) for pair in models]
    # Differences of independent models add up in squares, those of models that find the same differences as they are.
    apart = [float((sampling_K + problem_K**2).min()) for sampling_K, problem_K in parts]
    together = max(
        sum(sampling for sampling, _ in chosen) + sum(problem for _, problem in chosen) ** 2
        for chosen in itertools.product(*(zip(*part, strict=True) for part in parts))
    )
    return sum(apart), float(together)


def _parts(one: Audit, other: Audit, correlation: float) -> tuple[Floats, Floats]:
    """Variance by samples, and standard deviation by problems, of a cell's difference at each pair of counts K."""
    (sampling_I, true_I), (sampling_J, true_J) = (_arm(audit) for audit in (one, other))
    sampling_K = (sampling_I[:, None] + sampling_J).ravel()
    if math.isnan(correlation):
        return sampling_K, np.zeros_like(sampling_K)
    shared = 2 * correlation * np.sqrt(true_I[:, None] * true_J)
    variance_K = (true_I[:, None] + true_J - shared).ravel() / one.cell.problems
    return sampling_K, np.sqrt(np.maximum(variance_K, 0))


def _arm(audit: Audit) -> tuple[Floats, Floats]:
    """Variance of the mean by samples, and variance of the true accuracies of problems, over the range of q."""
    N, n = audit.cell.problems, audit.cell.samples
    if audit.right is None:
        raise ValueError(f"{audit.cell.arm} on {audit.cell.benchmark}: pass@1 is not a whole number of samples")
    p, q_I = audit.right / (N * n), np.linspace(*audit.square, 9)
    sample_I = (p - q_I) / (n - 1)
    return sample_I / N, np.maximum((q_I - p**2) * N / (N - 1) - sample_I, 0)


def table(audits: Sequence[Audit]) -> pd.DataFrame:
    """The rows of `experiments/results/audit.csv`; see the module's docstring."""
    rows = [*map(_cell_row, audits), *map(_difference_row, differences(audits)), *map(_pooled_row, pool(audits))]
    return pd.DataFrame(rows)


def _cell_row(one: Audit) -> dict[str, Any]:
    cell = one.cell
    row: dict[str, Any] = {"block": "cell", "model": cell.model, "arm": cell.arm, "benchmark": cell.benchmark}
    row |= {"pass_at_1": cell.pass_at_1, "pass_at_8": cell.pass_at_8, "right": one.right}
    row |= {"arrangements": one.arrangements, "nearest_best_at_8": one.nearest, "reachable": one.reachable}
    row |= {"draw_error": one.draw_error, **_bounds("best_at_8", one.best), **_bounds("sampling_se", one.sampling)}
    row |= _bounds("problem_se", one.problem) | _bounds("problem_at_8_se", one.problem_at_8)
    return row | {"verdict": one.estimator}


def _difference_row(one: Difference) -> dict[str, Any]:
    row: dict[str, Any] = {"block": "difference", "model": one.model, "arm": one.arm, "benchmark": one.benchmark}
    row |= {"metric": one.metric, "difference": one.value, "binomial_half_width": one.binomial, "verdict": one.verdict}
    return row | _bounds("sampling_half_width", one.sampling) | _bounds("problem_half_width", one.problem)


def _pooled_row(one: Pooled) -> dict[str, Any]:
    row: dict[str, Any] = {"block": "pooled", "arm": BASELINE, "metric": "pass@1", "difference": one.difference}
    row |= {"cells": one.cells, "positive": one.positive, "verdict": one.source, "correlation": one.correlation}
    # Two-sided p of the normal test: of the larger z, then of the smaller.
    p_low, p_high = (float(2 * special.ndtr(-abs(value))) for value in reversed(one.z))
    return row | _bounds("pooled_se", one.error) | _bounds("z", one.z) | _bounds("p", (p_low, p_high))


def _bounds(name: str, bounds: Range) -> dict[str, float]:
    return {f"{name}_{end}": value for end, value in zip(("low", "high"), bounds, strict=True)}


if __name__ == "__main__":
    audited = [audit(cell) for cell in cells(read_yaml(PAPER))]
    path = EXPERIMENTS / "results" / "audit.csv"
    table(audited).to_csv(path, index=False, lineterminator="\n", float_format="%.10g")
