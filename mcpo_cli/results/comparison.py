"""Sides against a baseline, benchmark by benchmark: means, differences, what they are made of, and flips."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from mcpo_cli.errors import ConfigError, nearest
from mcpo_cli.results import majority, verdicts
from mcpo_cli.results.log import Scores, Side
from mcpo_cli.statistics import crossed, sequential, stats
from mcpo_cli.statistics.crossed import Estimate, Sources
from mcpo_cli.statistics.power import ALPHA, noncentrality
from mcpo_cli.statistics.stats import Floats

ALL = "all benchmarks"
"""Name of the mean over benchmarks, which count alike."""


@dataclass(frozen=True)
class Metric:
    """pass@k or maj@k."""

    kind: Literal["pass", "maj"]
    k: int

    def __str__(self) -> str:
        return f"{self.kind}@{self.k}"

    def of(self, side: Scores) -> Floats:
        """Its value for each seed and problem; NaN where the cell is missing."""
        if self.kind == "maj":
            return side.majority[self.k]
        if self.k == 1:
            return side.score_SP
        correct_SP = np.rint(side.sum_SP).astype(np.int64)
        return np.asarray(stats.pass_at_k(side.samples_SP, correct_SP, self.k))


FEW_SEEDS, FEW_SAMPLES, FEW_PROBLEMS = 4, 100, 10
"""Up to so many seeds, samples of a side, or problems (with several seeds), and up to so many problems that differ
between two sides, intervals do not cover 93 to 97 % (docs/coverage.md)."""
MEAN = Metric("pass", 1)
"""The mean score, which is pass@1 where scores are 0 or 1."""


@dataclass(frozen=True)
class Question:
    """What is asked of the sides."""

    baseline: str = ""
    """Name of a side; empty for the first."""
    k: tuple[int, ...] = (1,)
    """pass@k, for each k; scores other than 0 and 1 have pass@1 alone: their mean."""
    majority: tuple[int, ...] = ()
    """maj@k, for each k; needs logs with answers and scores that are 0 or 1."""
    margin: float | None = None
    """The largest difference that does not matter, declared before looking: it opens `equivalent` and `not worse`."""
    level: float = ALPHA
    """Largest adjusted p-value that decides."""
    look: tuple[int, int] | None = None
    """(i, n): this is look i of n at growing data, declared before the first. The level of that look decides in the
    place of `level` (`statistics.sequential`), and intervals widen to it: they hold over all looks together."""

    @property
    def decides(self) -> float:
        """Largest adjusted p-value that decides at this look."""
        return self.level if self.look is None else sequential.look_level(*self.look)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All that is compared: pass@k, then maj@k."""
        return (*(Metric("pass", k) for k in self.k), *(Metric("maj", k) for k in self.majority))


@dataclass(frozen=True)
class Comparison:
    """The answer, as tidy frames."""

    arms: pd.DataFrame
    """One row per benchmark, metric (with its k) and side: mean, low, high, problems, seeds, samples."""
    differences: pd.DataFrame
    """One row per benchmark, metric and other side: difference, low, high, p-values, verdict, what can be found."""
    sources: pd.DataFrame
    """One row per difference and source of variance: sd and its share of the variance of the difference."""
    flips: pd.DataFrame
    """One row per problem whose mean score differs, largest first: benchmark, arm, problem, score, baseline_score."""
    warnings: tuple[str, ...]
    """Each in a sentence: how the sides differ besides their scores, and what was left out."""


@dataclass(frozen=True)
class Pair:
    """Two sides on one benchmark, on the problems that both have."""

    benchmark: str
    arm: str
    one: Scores
    other: Scores

    @property
    def same_seeds(self) -> bool:
        """Whether the seeds belong together: both name the same ones, and have a cell in common for each of them."""
        if self.one.seeds != self.other.seeds:
            return False
        both_SP = (self.one.samples_SP > 0) & (self.other.samples_SP > 0)
        return bool(both_SP.any(axis=0).all() and both_SP.any(axis=1).all())

    @property
    def most(self) -> int:
        """Largest k of pass@k: the fewest samples of a cell."""
        return min(int(side.samples_SP[side.samples_SP > 0].min()) for side in (self.one, self.other))

    def estimate(self, metric: Metric) -> Estimate:
        """The difference of a metric."""
        return crossed.difference(metric.of(self.one), metric.of(self.other), same_seeds=self.same_seeds)

    @property
    def samples(self) -> float:
        """Mean number of samples of a cell."""
        return float(np.mean([side.samples_SP.mean() for side in (self.one, self.other)]))

    def limits(self, found: Estimate) -> Iterator[str]:
        """Where an interval of this pair covers more or less than it says, in a sentence each."""
        seeds = min(found.seeds)
        size = f"{seeds} seeds x {found.problems} problems x {self.samples:.3g} samples"
        few = seeds * found.problems * self.samples <= FEW_SAMPLES or found.problems <= FEW_PROBLEMS
        if found.over_seeds and seeds <= FEW_SEEDS:
            yield (
                f"{self.benchmark}: {seeds} training seeds show little of their spread: the interval covers 90 to 98 %"
                ", and the smallest difference is found in 60 to 80 % of the cases"
            )
        if found.over_seeds and few:
            yield f"{self.benchmark}: {size} are few: the interval is wider than it had to be (it covers up to 99 %)"
        mine, theirs = (np.nanmean(side.score_SP, axis=0) for side in (self.one, self.other))
        differing = int((mine != theirs).sum())
        if 0 < differing <= FEW_PROBLEMS:
            yield (
                f"{self.benchmark}: only {differing} of {found.problems} problems differ between {self.arm} and the "
                "baseline: an interval that so few decide can be far too narrow"
            )

    def sources(self, found: Estimate) -> Sources:
        """What the difference of pass@1 is made of."""
        sizes = np.concatenate([side.samples_SP[side.samples_SP > 0] for side in (self.one, self.other)])
        noise = [self.one.noise_SP, self.other.noise_SP]
        return crossed.sources(found, noise, float(len(sizes) / (1 / sizes).sum()))


def compare(sides: Sequence[Side], question: Question) -> Comparison:
    """Compare every side with the baseline on every benchmark that both have.

    Raises:
        ConfigError: fewer than two sides, two of one name, no such baseline, nothing that two sides share, pass@k or
            maj@k of more samples than there are, maj@k without answers, or a look outside 1..n.
    """
    if question.look and not 1 <= question.look[0] <= question.look[1]:
        raise ConfigError(f"look {question.look[0]} of {question.look[1]}: a look lies in 1..n", code="out_of_bounds")
    baseline, others = _parted(sides, question.baseline)
    warnings: list[str] = []
    pairs = [pair for other in others for pair in _pairs(other, baseline, question, warnings)]
    _check_k(pairs, question.metrics)
    found = [(pair, metric, pair.estimate(metric)) for pair in pairs for metric in question.metrics]
    warnings += [limit for pair, metric, one in found if metric == MEAN for limit in pair.limits(one)]
    rows = [_row(pair, metric, one, question) for pair, metric, one in found]
    rows += [row for other in others for k in question.metrics for row in _over_all(other.name, pairs, k, question)]
    return Comparison(
        arms=pd.DataFrame([row for side in sides for row in _means(side, question)]),
        differences=verdicts.verdicts(pd.DataFrame(rows), question.decides),
        sources=pd.DataFrame([row for pair, metric, one in found if metric == MEAN for row in _source_rows(pair, one)]),
        flips=pd.concat([_flips(pair) for pair in pairs], ignore_index=True),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _parted(sides: Sequence[Side], baseline: str) -> tuple[Side, list[Side]]:
    names = [side.name for side in sides]
    if len(sides) < 2:
        raise ConfigError("a comparison needs at least two sides", fix="mcpo compare A B")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"two sides are named {twice[0]!r}", fix="name them: --arm NAME='PATHS'")
    if baseline and baseline not in names:
        raise ConfigError(f"no side is named {baseline!r}: {nearest(baseline, names)}")
    first = sides[names.index(baseline)] if baseline else sides[0]
    return first, [side for side in sides if side is not first]


def _scores(side: Side, benchmark: str, question: Question) -> Scores:
    found = side.scores(benchmark)
    return replace(found, majority=majority.tables(side, benchmark, found, question.majority))


def _pairs(side: Side, baseline: Side, question: Question, warnings: list[str]) -> Iterator[Pair]:
    shared = [name for name in baseline.benchmarks if name in side.benchmarks]
    if not shared:
        raise ConfigError(
            f"{side.name} and {baseline.name} share no benchmark: {', '.join(side.benchmarks)} "
            f"against {', '.join(baseline.benchmarks)}"
        )
    for left in sorted({*side.benchmarks, *baseline.benchmarks} - set(shared)):
        warnings.append(f"{left} was left out: only one of {side.name} and {baseline.name} has it")
    for name in shared:
        one, other = (_scores(each, name, question) for each in (side, baseline))
        common = [problem for problem in one.problems if problem in set(other.problems)]
        if len(common) < 2:
            raise ConfigError(f"{side.name} and {baseline.name} share {len(common)} problems of {name}: nothing pairs")
        if lost := len(one.problems) + len(other.problems) - 2 * len(common):
            warnings.append(f"{name}: {lost} problems that only {side.name} or {baseline.name} has were left out")
        warnings += _facts(side, baseline, name)
        yield Pair(name, side.name, one.only(common), other.only(common))


def _facts(side: Side, baseline: Side, benchmark: str) -> Iterator[str]:
    """How the samples of both were made, where it differs."""
    one, other = side.facts(benchmark), baseline.facts(benchmark)
    for name in sorted({*one, *other}):
        mine, theirs = one.get(name, "not recorded"), other.get(name, "not recorded")
        if mine != theirs:
            yield f"{benchmark}: {name} differs: {side.name} {mine}; {baseline.name} {theirs}"


def _check_k(pairs: Sequence[Pair], asked: Sequence[Metric]) -> None:
    most = max(asked, key=lambda metric: metric.k)
    for pair in pairs:
        if most.k > pair.most:
            raise ConfigError(
                f"{most} needs {most.k} samples of every problem; {pair.benchmark} has {pair.most}",
                fix=f"--k {pair.most}",
            )
        if most.k > 1 and not (pair.one.binary and pair.other.binary):
            raise ConfigError(f"{pair.benchmark}: {most} needs scores that are 0 or 1", fix="--k 1")


def _means(side: Side, question: Question) -> Iterator[dict[str, object]]:
    for benchmark in side.benchmarks:
        scores = _scores(side, benchmark, question)
        for metric in question.metrics:
            if len(scores.problems) < 2 or int(scores.samples_SP[scores.samples_SP > 0].min()) < metric.k:
                continue
            found = crossed.mean(metric.of(scores))
            low, high = stats.share_interval(
                found.test.mean, found.test.error**2, found.problems * len(scores.seeds), found.test.df
            )
            yield {
                "benchmark": benchmark,
                "metric": str(metric),
                "k": metric.k,
                "arm": side.name,
                "mean": found.test.mean,
                "low": low,
                "high": high,
                "problems": found.problems,
                "seeds": len(scores.seeds),
                "samples": int(scores.samples_SP.sum()),
            }


def _row(pair: Pair, metric: Metric, found: Estimate, question: Question) -> dict[str, object]:
    sources = pair.sources(found)
    design = found.problems, min(found.seeds), pair.samples
    # Of pass@k and maj@k, the variance of a sample is not that of a response: what to buy is not said.
    effect = question.margin or abs(found.test.mean)
    needed = sources.needed(effect, *design) if metric == MEAN and found.test.error > stats.ROUNDING else {}
    return {
        **_tested(pair.benchmark, pair.arm, metric, found, question),
        "paired_by_seed": pair.same_seeds,
        "detectable": found.test.error * noncentrality(found.test.df),
        **{f"needed_{name}": value for name, value in needed.items()},
    }


def _tested(benchmark: str, arm: str, metric: Metric, found: Estimate, question: Question) -> dict[str, object]:
    interval, tests = found.test.interval(1 - question.decides), verdicts.tests(found, question.margin)
    return {
        "benchmark": benchmark,
        "metric": str(metric),
        "k": metric.k,
        "arm": arm,
        "family": ALL if benchmark == ALL else "benchmarks",
        "difference": found.test.mean,
        "low": interval.low,
        "high": interval.high,
        "p": tests.p,
        "p_not_worse": tests.p_not_worse,
        "p_equivalent": tests.p_equivalent,
        "why": tests.why,
        "problems": found.problems,
        "seeds": min(found.seeds),
        "over_seeds": found.over_seeds,
    }


def _over_all(arm: str, pairs: Sequence[Pair], metric: Metric, question: Question) -> Iterator[dict[str, object]]:
    """The mean difference over the benchmarks, where there are several with the same seeds."""
    own = [pair for pair in pairs if pair.arm == arm]
    seeds = {(pair.one.seeds, pair.other.seeds) for pair in own}
    if len(own) < 2 or len(seeds) > 1:
        return
    one, other = (np.hstack([metric.of(getattr(pair, side)) for pair in own]) for side in ("one", "other"))
    stratum_P = np.repeat(np.arange(len(own)), [len(pair.one.problems) for pair in own])
    same_seeds = all(pair.same_seeds for pair in own)
    found = crossed.difference(one, other, stratum_P, same_seeds=same_seeds)
    yield {**_tested(ALL, arm, metric, found, question), "paired_by_seed": same_seeds}


def _source_rows(pair: Pair, found: Estimate) -> Iterator[dict[str, object]]:
    sources, problems, seeds = pair.sources(found), found.problems, min(found.seeds)
    parts = {
        "problems": (sources.problem, problems),
        "seeds": (sources.seed, seeds),
        "problem x seed": (sources.cell, problems * seeds),
        "samples": (sources.sample, problems * seeds * pair.samples),
    }
    known = {name: variance / number for name, (variance, number) in parts.items() if not np.isnan(variance)}
    whole = sum(known.values())
    for name, share in known.items():
        yield {
            "benchmark": pair.benchmark,
            "arm": pair.arm,
            "source": name,
            "sd": float(np.sqrt(parts[name][0])),
            "share": share / whole if whole > 0 else 0.0,
        }


def _flips(pair: Pair) -> pd.DataFrame:
    mine, theirs = (np.nanmean(side.score_SP, axis=0) for side in (pair.one, pair.other))
    found = pd.DataFrame(
        {
            "benchmark": pair.benchmark,
            "arm": pair.arm,
            "problem": pair.one.problems,
            "score": mine,
            "baseline_score": theirs,
        }
    )
    distance_P = np.abs(mine - theirs)
    order_P = np.argsort(-distance_P, kind="stable")
    return found.take(order_P[distance_P[order_P] > 0])
