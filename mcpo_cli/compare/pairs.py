"""An arm and the baseline on one benchmark, or on several together: their difference and its sources of variance."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mcpo_cli.compare.scores import MEAN, Arm, Metric, Scores
from mcpo_cli.errors import ConfigError
from mcpo_cli.statistics import crossed, power
from mcpo_cli.statistics.crossed import Estimate, Over, Sources
from mcpo_cli.statistics.power import ALPHA
from mcpo_cli.statistics.stats import LEAST, Floats, Ints

FEW_SEEDS, FEW_SAMPLES, FEW_PROBLEMS = 4, 100, 10
"""Up to these numbers of seeds, samples of an arm, or problems (with several seeds; or that differ between two arms),
the coverage of intervals over problems is outside 93 to 97 % (`make interval-coverage`)."""


@dataclass(frozen=True)
class Pair:
    """Two arms on the problems that both have."""

    benchmark: str
    arm: str
    one: Scores
    other: Scores
    stratum_P: Ints
    """The benchmark of each problem, if the pair is of several benchmarks with equal weights; else all are 0."""
    unpaired: int = 0
    """Number of cells that only one arm has, if seeds belong together: these cells are left out of both arms."""

    @property
    def same_seeds(self) -> bool:
        """True if the seeds belong together: both arms name the same ones, and share a cell for each of them."""
        if self.one.seeds != self.other.seeds:
            return False
        both_SP = self.shared_SP
        return bool(both_SP.any(axis=0).all() and both_SP.any(axis=1).all())

    @cached_property
    def shared_SP(self) -> NDArray[np.bool_]:
        """The cells that both arms have, of the same seeds."""
        return np.asarray((self.one.samples_SP > 0) & (self.other.samples_SP > 0))

    @property
    def of_shared_cells(self) -> "Pair":
        """The pair without the cells that only one arm has, if seeds belong together: then cells do, too."""
        if not self.same_seeds or self.shared_SP.all():
            return self
        one, other = (scores.of_cells(self.shared_SP) for scores in (self.one, self.other))
        either_SP = (self.one.samples_SP > 0) | (self.other.samples_SP > 0)
        return replace(self, one=one, other=other, unpaired=int((either_SP & ~self.shared_SP).sum()))

    @cached_property
    def cluster_P(self) -> Ints:
        """The cluster of each problem, by the baseline's name if both arms name it."""
        scores = self.other if self.other.clusters else self.one
        return np.unique(scores.cluster_names, return_inverse=True)[1]

    @property
    def has_problems(self) -> bool:
        """False if a benchmark is one value of each run."""
        return bool(np.bincount(self.stratum_P).min() > 1)

    @property
    def share(self) -> bool:
        """True if the scores of both are within 0..1."""
        return self.one.share and self.other.share

    @property
    def samples(self) -> float:
        """Mean number of samples of a cell."""
        return float(np.mean([scores.samples_SP.mean() for scores in (self.one, self.other)]))

    def estimate(self, metric: Metric, over: Over) -> Estimate:
        """The difference of a metric."""
        one, other = metric.of(self.one), metric.of(self.other)
        return crossed.difference(one, other, self.stratum_P, self.cluster_P, same_seeds=self.same_seeds, over=over)

    def means(self, metric: Metric) -> tuple[float, float]:
        """The mean of a metric of both arms."""
        one, other = (crossed.effects(metric.of(scores), self.stratum_P).mean for scores in (self.one, self.other))
        return one, other

    def by_seed(self, metric: Metric) -> tuple[float, ...]:
        """The difference of each seed, as a mean over benchmarks; empty if the seeds do not belong together."""
        if not self.same_seeds:
            return ()
        diff_SP = metric.of(self.one) - metric.of(self.other)
        parts = [np.nanmean(diff_SP[:, self.stratum_P == stratum], axis=1) for stratum in np.unique(self.stratum_P)]
        return tuple(np.mean(parts, axis=0).tolist())

    def limits(self, estimate: Estimate) -> Iterator[str]:
        """A sentence on cells that were left out, and on each reason why an interval does not cover its level."""
        if self.unpaired:
            yield (
                f"{self.benchmark}: {self.unpaired} scores of a problem by a seed were left out: only {self.arm} or "
                "the baseline has them"
            )
        seeds = min(estimate.seeds)
        size = f"{seeds} seeds x {estimate.problems} problems x {self.samples:.3g} samples"
        is_small = seeds * estimate.problems * self.samples <= FEW_SAMPLES or estimate.problems <= FEW_PROBLEMS
        if estimate.over == "both" and seeds <= FEW_SEEDS:
            yield (
                f"{self.benchmark}: {seeds} training seeds show little of their spread: the interval covers 90 to 98 %"
                ", and the smallest difference is found in 60 to 80 % of the cases"
            )
        if estimate.over == "both" and is_small:
            yield f"{self.benchmark}: {size} are few: the interval is wider than it had to be (it covers up to 99 %)"
        if estimate.over == "seeds" and len(estimate.seeds) == 2 and seeds == LEAST < max(estimate.seeds):
            yield (
                f"{self.benchmark}: Welch's test of {seeds} runs against {max(estimate.seeds)} errs in 5 to 7 % of the "
                "cases at level .05, and in 1 to 3 % at .01; as many runs of both keep the level"
            )
        differing = int((self.change_P(MEAN) != 0).sum())
        if estimate.over in ("problems", "both") and 0 < differing <= FEW_PROBLEMS:
            fewest = power.fewest_differing(ALPHA)
            powerless = f"no result of so few can be significant, it takes {fewest}; " if differing < fewest else ""
            yield (
                f"{self.benchmark}: only {differing} of {estimate.problems} problems differ between {self.arm} and the "
                f"baseline: {powerless}an interval that so few decide can be far too narrow"
            )

    def change_P(self, metric: Metric) -> Floats:
        """The difference of each problem in a metric, as means over seeds."""
        one_P, other_P = (np.nanmean(metric.of(scores), axis=0) for scores in (self.one, self.other))
        return np.asarray(one_P - other_P)

    def sources(self, estimate: Estimate) -> Sources:
        """Sources of the variance of the difference of mean scores. estimate: that difference, over both."""
        if not self.has_problems:
            seed = sum(part.value * seeds for part, seeds in zip(estimate.parts, estimate.seeds, strict=True))
            return Sources(math.nan, seed, math.nan, math.nan, len(estimate.seeds))
        sizes = np.concatenate([scores.samples_SP[scores.samples_SP > 0] for scores in (self.one, self.other)])
        noise = [self.one.noise_SP, self.other.noise_SP]
        return crossed.sources(estimate, noise, float(len(sizes) / (1 / sizes).sum()))


def pair(arm: Arm, baseline: Arm, benchmark: str) -> Pair:
    """Both arms on the problems of a benchmark that both have, and on the seeds of both if these have names.

    Raises:
        ConfigError: both share fewer than two problems; one suffices if both have no other (`log.WHOLE`).
    """
    one, other = arm.scores[benchmark], baseline.scores[benchmark]
    baseline_problems = set(other.problems)
    common = [problem for problem in one.problems if problem in baseline_problems]
    if len(common) < (2 if len(one.problems) > 1 or len(other.problems) > 1 else 1):
        raise ConfigError(
            f"{arm.name} and {baseline.name} have {len(common) or 'no'} problem of {benchmark} in common, "
            f"too few to pair: {arm.name} has {_some(one.problems)}, {baseline.name} has {_some(other.problems)}",
            fix="name the column that identifies a problem in both: --columns problem=NAME",
            code="nothing_pairs",
        )
    one, other = one.only(common), other.only(common)
    if arm.named_seeds and baseline.named_seeds:
        seeds = [seed for seed in other.seeds if seed in one.seeds]
        one, other = one.of_seeds(seeds), other.of_seeds(seeds)
    return Pair(benchmark, arm.name, one, other, np.zeros(len(common), int)).of_shared_cells


def left_out(arm: Arm, baseline: Arm, benchmark: str) -> str:
    """A sentence on problems that only one arm has, with its scores there: the other problems may be a biased part."""
    count, means = 0, []
    for side, other in ((arm, baseline), (baseline, arm)):
        scores, places = side.scores[benchmark], other.scores[benchmark].place
        gaps = [problem for problem in scores.problems if problem not in places]
        common = [problem for problem in scores.problems if problem in places]
        count += len(gaps)
        if gaps and common:
            first, second = (float(np.nanmean(scores.only(part).score_SP)) for part in (gaps, common))
            means.append(f"{side.name} has a mean of {first:.3g} on its {len(gaps)}, and of {second:.3g} on the others")
    sentence = f"{benchmark}: {count} problems that only {arm.name} or {baseline.name} has were left out"
    return ": ".join([sentence, *(["; ".join(means)] if means else [])]) if count else ""


def together(name: str, pairs: Sequence[Pair]) -> Pair | None:
    """Several benchmarks of one arm with equal weights; None if they are fewer than two, or differ in seeds or units.

    Units are taken to differ if some scores are within 0..1 and some are not.
    """
    mixed = len({(pair.one.seeds, pair.other.seeds) for pair in pairs}) > 1 or len({pair.share for pair in pairs}) > 1
    if len(pairs) < 2 or mixed:
        return None
    stratum_P = np.repeat(np.arange(len(pairs)), [len(pair.stratum_P) for pair in pairs])
    sides = [joined({pair.benchmark: getattr(pair, side) for pair in pairs}) for side in ("one", "other")]
    return Pair(name, pairs[0].arm, sides[0], sides[1], stratum_P)


def joined(scores: Mapping[str, Scores]) -> Scores:
    """The scores of benchmarks with the same seeds in one table, whose problems are named with their benchmarks."""
    parts = list(scores.values())
    shared = set.intersection(*(set(part.values) for part in parts))
    samples_SP, sum_SP, square_SP = (
        np.hstack([getattr(part, name) for part in parts]) for name in ("samples_SP", "sum_SP", "square_SP")
    )
    return Scores(
        parts[0].seeds,
        tuple(f"{name}/{problem}" for name, part in scores.items() for problem in part.problems),
        samples_SP,
        sum_SP,
        square_SP,
        {metric: np.hstack([part.values[metric] for part in parts]) for metric in shared},
        # A problem that two benchmarks have is one cluster: its scores are not independent.
        tuple(name for part in parts for name in part.cluster_names),
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join([*(f"{name!r:.60}" for name in names[:2]), *(["..."] if len(names) > 2 else [])])
