"""The mean of scores over problems x training seeds, and the difference of two: for results of any tool.

Score y_sp, the mean over the samples of problem p by the model of seed s, is taken as

    y_sp = mean + problem_p + seed_s + cell_sp,

with independent terms of unknown spread; the cell holds the effect of a problem on one run, and its samples. Problems
and seeds are both a sample: an interval is about other problems of the same kind and other seeds of the same recipe.
With one seed it is about these models (only other problems of the same kind). A caller may also ask for problems or
seeds alone (`Over`). Over seeds alone, the interval of a complete table is Student's interval of the seeds' means
(Welch's if seeds are not paired), and it holds for these problems.

Problems may come in clusters that are not independent: questions of one passage, variants of one template, or one
problem that two benchmarks (or two filters of one answer) share. Then clusters take the place of problems: residuals
are summed over a cluster before they are squared, with the cluster-robust variance CR2 of `clusters.py`. A problem
without a cluster is a cluster of its own; for such clusters CR2 is the usual variance of a mean.

The variance of the mean is Vp + Vs - Vc: the spread of problems' means, plus the spread of seeds' means, minus the
spread of the cells, which both of them contain (Cameron, Gelbach and Miller 2011, J. Bus. Econ. Stat. 29, 238-249, for
two-way clusters; for complete tables the estimator of the analysis of variance). The variance counts as at least Vc.
Its degrees of freedom are Satterthwaite's (1946, Biometrics Bulletin 2, 110-114), and at least the seeds'. Where Holm's
method looks, far below .05, p-values also allow for the doubt in the spread of few seeds (`FewSeeds`).

Coverage of the 95 % intervals, simulated over 3 to 30 seeds, 10 to 1000 problems and 1 to 64 samples, paired by seed or
not, with missing and uneven cells: `make interval-coverage`. 93 to 98 % from 100 samples of a side on; up to 99 %
below, as 3 seeds show too little of their spread to leave it out.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from mcpo_cli.statistics import clusters as clusters_of
from mcpo_cli.statistics.power import ALPHA, fewest, noncentrality
from mcpo_cli.statistics.stats import LEAST, ROUNDING, Floats, Interval, Ints, Student

Over = Literal["seeds", "problems", "both", "history"]
"""What an interval is about: other seeds of the same recipe, other problems of the same kind, or both. For a new run
against a history of runs: the range of a further run of the history's kind (`difference`)."""

PASSES = 200
"""Most passes of the fit of problem and seed effects to a table with missing cells; complete tables take one."""
TAIL = 0.025
"""One-sided p-values below this allow for the doubt in the seeds' spread."""
NODES = 32
"""Points of the quadrature over that doubt."""
MOST = 1_000_000
"""Largest number of problems, seeds or samples that `Sources.needed` tries."""


@dataclass(frozen=True)
class Part:
    """One signed term of the variance of a mean."""

    name: str
    """problem (one for each benchmark), seed or cell (one for each side)."""
    value: float
    df: float
    sign: int = 1


@dataclass(frozen=True)
class FewSeeds(Student):
    """An estimate over problems and seeds, whose p-values hold in the tails as well.

    Satterthwaite's degrees of freedom are an estimate, too large where the seeds' spread happened to come out small. At
    level .05 that matters little, but at .0083, where Holm's method looks in a family of six, 3 seeds x 60 problems
    find a difference that does not exist in 2 to 3 % of the cases. Below a two-sided .05, p is therefore at least the
    generalized p-value (Tsui and Weerahandi 1989, J. Am. Stat. Assoc. 84, 602-607): the mean of Student's p over the
    variances of seeds that their mean square leaves open, df x mean square / chi2 with df degrees of freedom.
    """

    seeds: Part
    """The seeds' part of the variance; for two sides with seeds of their own, both parts together."""
    rest: tuple[Part, ...]
    """All other parts."""

    def p_above(self, bound: float = 0.0) -> float:
        """As `Student.p_above`, and at least the generalized p-value where that is below .025."""
        p = super().p_above(bound)
        return max(p, min(TAIL, self._generalized(self.mean - bound))) if p < TAIL else p

    def interval(self, level: float = 0.95) -> Interval:
        """The values that no two-sided test at 1 - level rejects."""
        interval, tail = super().interval(level), 0.5 - level / 2
        if tail >= TAIL or not interval.half_width > 0:
            return interval
        low, high = interval.half_width, 2 * interval.half_width
        while self._generalized(high) > tail:
            low, high = high, 2 * high
        while high - low > ROUNDING * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self._generalized(middle) > tail else (low, middle)
        return Interval(self.mean, high, self.n)

    def _generalized(self, distance: float) -> float:
        """The one-sided generalized p-value of a distance; at least .5 below 0."""
        node_K, weight_K = np.polynomial.legendre.leggauss(NODES)
        open_K = self.seeds.value * self.seeds.df / special.chdtri(self.seeds.df, (1 + node_K) / 2)
        cells = sum(part.value for part in self.rest if part.sign < 0)
        variance_K = np.maximum(sum(part.sign * part.value for part in self.rest) + open_K, cells)
        doubt = sum(part.value**2 / part.df for part in self.rest)
        least_df = min(part.df for part in self.rest)
        df_K = np.maximum(variance_K**2 / doubt, least_df) if doubt > 0 else np.full(NODES, least_df)
        return float(weight_K @ special.stdtr(df_K, -distance / np.sqrt(variance_K)) / 2)


@dataclass(frozen=True)
class Estimate:
    """A mean or a difference with the known parts of its error."""

    test: Student
    parts: tuple[Part, ...]
    problems: int
    clusters: int
    """Number of clusters of problems: the number of problems, unless some belong together."""
    seeds: tuple[int, ...]
    """Number of seeds of each side; one number if both sides are paired by seed, or for a mean."""

    @property
    def over(self) -> Over:
        """What the interval is about; over both, fewer than LEAST seeds leave only the problems."""
        names = {part.name for part in self.parts}
        if "history" in names:
            return "history"
        if "problem" not in names:
            return "seeds"
        return "both" if "seed" in names else "problems"


@dataclass(frozen=True)
class Effects:
    """A table of scores split into problem effects and seed effects by least squares."""

    score_SP: Floats
    """NaN if a cell is missing."""
    weight_SP: Floats
    """Weights of the cells in the mean, which sum to 1."""
    problem_P: Floats
    seed_S: Floats

    @property
    def mean(self) -> float:
        """Mean over benchmarks of the mean over problems of the mean over seeds."""
        return float(np.nansum(self.weight_SP * self.score_SP))

    @property
    def problem_sums_P(self) -> Floats:
        """The part of each problem in the mean, without seed effects."""
        return np.asarray(np.nansum(self.weight_SP * (self.score_SP - self.seed_S[:, None]), axis=0))

    def seed_part(self) -> Part:
        """Variance of the mean by seeds' means, which contains the cells' part once."""
        weight_S = self.weight_SP.sum(axis=1)
        sum_S = np.nansum(self.weight_SP * (self.score_SP - self.problem_P), axis=1)
        seeds = len(weight_S)
        rest_S = sum_S - weight_S * sum_S.sum() / weight_S.sum()
        return Part("seed", float((rest_S**2).sum()) * seeds / (seeds - 1), seeds - 1)

    def cell_part(self, cluster_P: Ints) -> Part:
        """Variance of the mean by the cells (one cluster of one seed), that is neither by clusters nor by seeds."""
        present_SP = ~np.isnan(self.score_SP)
        rest_SP = np.where(present_SP, self.weight_SP * (self.score_SP - self.problem_P - self.seed_S[:, None]), 0.0)
        rest_SC = np.array([np.bincount(cluster_P, rest_P) for rest_P in rest_SP])
        present_SC = np.array([np.bincount(cluster_P, present_P) > 0 for present_P in present_SP])
        number, (seeds, clusters) = int(present_SC.sum()), present_SC.shape
        df = number - seeds - clusters + 1
        return Part("cell", float((rest_SC**2).sum()) * number / df if df > 0 else 0.0, max(df, 1), -1)


def effects(score_SP: Floats, stratum_P: Ints) -> Effects:
    """Fit problem and seed effects by least squares; a missing cell is NaN.

    Raises:
        ValueError: a problem or a seed has no cell.
    """
    present_SP = ~np.isnan(score_SP)
    if not (present_SP.any(axis=0).all() and present_SP.any(axis=1).all()):
        raise ValueError("a problem or a seed has no scores")
    size_B = np.bincount(stratum_P)
    weight_SP = present_SP / present_SP.sum(axis=0) / (size_B.size * size_B[stratum_P])
    seed_S = np.zeros(len(score_SP))
    for _ in range(PASSES):
        problem_P = np.nanmean(score_SP - seed_S[:, None], axis=0)
        before, seed_S = seed_S, np.nanmean(score_SP - problem_P, axis=1)
        seed_S = seed_S - seed_S.mean()
        if np.abs(seed_S - before).max() < ROUNDING or present_SP.all():
            break
    problem_P = np.nanmean(score_SP - seed_S[:, None], axis=0)
    return Effects(score_SP, weight_SP, problem_P, seed_S)


def mean(
    score_SP: Floats, stratum_P: Ints | None = None, cluster_P: Ints | None = None, *, over: Over = "both"
) -> Estimate:
    """The mean of one side.

    Args:
        score_SP: a score for each seed and problem, the mean over its samples; NaN if it is missing.
        stratum_P: the benchmark of each problem, 0 to B - 1; benchmarks have equal weights. Without it all problems are
            of one benchmark.
        cluster_P: the cluster of each problem, 0 to C - 1, which may reach over benchmarks; by default each problem is
            a cluster.

    Raises:
        ValueError: a problem or a seed has no scores, or, unless over seeds alone, a benchmark has fewer than 2
            problems.
    """
    table, strata, clusters = _table(score_SP, stratum_P, cluster_P)
    fitted = effects(table, strata)
    return _estimate(fitted.mean, fitted.problem_sums_P, strata, clusters, [fitted], over)


def difference(
    a_SP: Floats,
    b_SP: Floats,
    stratum_P: Ints | None = None,
    cluster_P: Ints | None = None,
    *,
    same_seeds: bool,
    over: Over = "both",
) -> Estimate:
    """The difference a - b of two sides with the same problems, in the same order.

    Over a history, b has earlier runs, and the spread of their means is taken for the spread of a's runs, too: the
    interval is Student's prediction interval for the mean of as many new runs as a has; its width is sqrt(1/a + 1/b) of
    the spread.

    Args:
        a_SP, b_SP, stratum_P, cluster_P: as in `mean`.
        same_seeds: row s of both belongs together, so their difference is taken first.

    Raises:
        ValueError: as in `mean`, or the numbers of problems (or of seeds, if they belong together) differ.
    """
    (a, strata, clusters), (b, _, _) = (_table(side_SP, stratum_P, cluster_P) for side_SP in (a_SP, b_SP))
    if same_seeds and over != "history":
        if a.shape != b.shape:
            raise ValueError("sides that are paired by seed need the same number of seeds and problems")
        return mean(a - b, strata, clusters, over=over)
    if a.shape[1] != b.shape[1]:
        raise ValueError("both sides need the same problems")
    effects_a, effects_b = effects(a, strata), effects(b, strata)
    if over == "history":
        return _of_history(effects_a, effects_b, len(np.unique(clusters)))
    sum_P = effects_a.problem_sums_P - effects_b.problem_sums_P
    return _estimate(effects_a.mean - effects_b.mean, sum_P, strata, clusters, [effects_a, effects_b], over)


def _of_history(new: Effects, old: Effects, clusters: int) -> Estimate:
    difference, (runs, problems), new_runs = new.mean - old.mean, old.score_SP.shape, len(new.score_SP)
    if runs < 2:
        return Estimate(Student(difference, math.nan, 0, runs), (Part("history", 0.0, 0),), problems, clusters, (runs,))
    part = Part("history", old.seed_part().value * (1 + runs / new_runs), runs - 1)
    test = Student(difference, math.sqrt(part.value), part.df, runs)
    return Estimate(test, (part,), problems, clusters, (runs,))


def _table(score_SP: Floats, stratum_P: Ints | None, cluster_P: Ints | None) -> tuple[Floats, Ints, Ints]:
    table = np.asarray(score_SP, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise ValueError("scores are a table of seeds x problems")
    problems = table.shape[1]
    strata = np.zeros(problems, int) if stratum_P is None else stratum_P
    return table, strata, np.arange(problems) if cluster_P is None else cluster_P


def _estimate(
    value: float, sum_P: Floats, stratum_P: Ints, cluster_P: Ints, sides: Sequence[Effects], over: Over
) -> Estimate:
    seeds, problems, clusters = tuple(len(side.seed_S) for side in sides), len(sum_P), len(np.unique(cluster_P))
    parts: list[Part] = []
    number = clusters
    if over in ("seeds", "history"):
        number = min(seeds)
        parts += [side.seed_part() for side in sides] if number > 1 else []
    else:
        parts += [Part("problem", *part) for part in clusters_of.variances(sum_P, stratum_P, cluster_P)]
    # Two seeds show almost nothing of their spread, and one shows none: such an estimate is about these models.
    if over == "both" and min(seeds) >= LEAST:
        parts += [part for side in sides for part in (side.seed_part(), side.cell_part(cluster_P))]
        number = min(*seeds, clusters)
    if not parts or min(part.df for part in parts) <= 0:
        return Estimate(Student(value, math.nan, 0, number), (), problems, clusters, seeds)
    least_df = min([number, *(part.df + 1 for part in parts if part.name == "problem")]) - 1
    variance, df = _satterthwaite(parts, least_df)
    test = Student(value, math.sqrt(variance), df, number)
    rest = tuple(part for part in parts if part.name != "seed")
    if 0 < len(rest) < len(parts):
        of_seeds = [part for part in parts if part.name == "seed"]
        seed_part = Part("seed", *_satterthwaite(of_seeds, least_df))
        test = FewSeeds(test.mean, test.error, test.df, test.n, seed_part, rest)
    return Estimate(test, tuple(parts), problems, clusters, seeds)


def _satterthwaite(parts: Sequence[Part], least_df: float) -> tuple[float, float]:
    """Variance and degrees of freedom of a signed sum of mean squares; the variance counts at least the cells'."""
    floor = sum(part.value for part in parts if part.sign < 0)
    variance = max(sum(part.sign * part.value for part in parts), floor)
    doubt = sum(part.value**2 / part.df for part in parts)
    df = variance**2 / doubt if doubt > 0 else least_df
    return variance, max(df, least_df)


def sources(estimate: Estimate, noise: Sequence[Floats], samples: float) -> "Sources":
    """Contribution of each term to the variance of an estimate; a term below 0, by chance, counts as 0.

    Args:
        estimate: an estimate of a mean or a difference, over both or over problems; for several benchmarks, `problems`
            counts all problems.
        noise: for each side of the estimate (one for a mean, two for a difference), the variance of a single sample in
            each cell: c (n - c) / (n (n - 1)) for c correct samples of n; NaN for one sample.
        samples: harmonic mean of the numbers of samples of a cell.
    """
    sample = sum(float(np.nanmean(side)) if np.isfinite(side).any() else math.nan for side in noise)
    sample_part = 0.0 if math.isnan(sample) else sample / samples
    problem = sum(part.value for part in estimate.parts if part.name == "problem")
    seed_parts, cell_parts = ([part for part in estimate.parts if part.name == name] for name in ("seed", "cell"))
    if not seed_parts:
        spread = problem * estimate.problems - sample_part / estimate.seeds[0]
        return Sources(max(0.0, spread), math.nan, math.nan, sample)
    pairs = list(zip(seed_parts, cell_parts, estimate.seeds, strict=True))
    return Sources(
        problem=max(0.0, problem - sum(cell.value for cell in cell_parts)) * estimate.problems,
        seed=sum(max(0.0, seed.value - cell.value) * seeds for seed, cell, seeds in pairs),
        cell=max(0.0, sum(cell.value * estimate.problems * seeds for _, cell, seeds in pairs) - sample_part),
        sample=sample,
        sides=len(estimate.seeds),
    )


@dataclass(frozen=True)
class Sources:
    """Variances of the terms of a score or of a paired difference: of one problem, one seed, one cell, one sample."""

    problem: float
    seed: float
    """NaN below LEAST seeds."""
    cell: float
    """Variance of the effect of a problem on one run, without samples; NaN below LEAST seeds: a part of `problem`."""
    sample: float
    """Variance of one sample; NaN if every cell has one sample, which is then a part of `cell`."""
    sides: int = 1
    """2 if the seeds of two sides are not paired: each side has its own."""
    level: float = ALPHA
    """Level of the two-sided test that is planned."""

    def error(self, problems: int, seeds: int, samples: float, over: Over = "both") -> tuple[float, float]:
        """The standard error of a design and its degrees of freedom, as `difference` would give them on average."""
        cell = sum(0.0 if math.isnan(term) else term for term in (self.cell, self.sample / samples))
        cells = cell / (problems * seeds)
        of_seeds = Part("seed", self.seed / seeds + cells, (seeds - 1) * self.sides)
        if over == "seeds":
            return math.sqrt(of_seeds.value), of_seeds.df
        parts, least_df = [Part("problem", self.problem / problems + cells, problems - 1)], problems - 1
        if over == "both" and not math.isnan(self.seed) and seeds >= LEAST:
            parts += [of_seeds, Part("cell", cells, (problems - 1) * (seeds - 1) * self.sides, -1)]
            least_df = min(seeds, problems) - 1
        variance, df = _satterthwaite(parts, least_df)
        return math.sqrt(variance), df

    def detectable(self, problems: int, seeds: int, samples: float, over: Over = "both") -> float:
        """The smallest difference that a two-sided t-test at `level` finds with probability .8 in a design."""
        error, df = self.error(problems, seeds, samples, over)
        return error * noncentrality(df, self.level)

    def needed(
        self, effect: float, problems: int, seeds: int, samples: float, over: Over = "both"
    ) -> dict[str, int | None]:
        """Numbers of problems, seeds or samples that find `effect`, the other two fixed; None if none does."""
        no_seeds = math.isnan(self.seed) or over == "problems"
        return {
            "problems": _fewest(problems, lambda n: self.detectable(n, seeds, samples, over) <= effect),
            "seeds": None
            if no_seeds
            else _fewest(seeds, lambda n: self.detectable(problems, n, samples, over) <= effect),
            "samples": None
            if math.isnan(self.sample)
            else _fewest(math.ceil(samples), lambda n: self.detectable(problems, seeds, n, over) <= effect),
        }


def _fewest(start: int, enough: Callable[[int], bool]) -> int | None:
    """The least number from `start` on that is enough; None above MOST."""
    if enough(start):
        return start
    high = 2 * start
    while high <= MOST and not enough(high):
        high *= 2
    return fewest(high // 2, high, enough) if high <= MOST else None
