"""Sides against a baseline, benchmark by benchmark: means, differences, what they are made of, and flips."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mcpo_cli.errors import ConfigError, closest, nearest
from mcpo_cli.results import verdicts
from mcpo_cli.results.flips import with_texts
from mcpo_cli.results.log import Scores, Side
from mcpo_cli.statistics import crossed, stats
from mcpo_cli.statistics.crossed import Estimate, Sources
from mcpo_cli.statistics.power import ALPHA, noncentrality
from mcpo_cli.statistics.stats import Floats

ALL = "all benchmarks"
"""Name of the mean over benchmarks, which count alike."""


@dataclass(frozen=True)
class Question:
    """What is asked of the sides."""

    baseline: str = ""
    """Name of a side; empty for the first."""
    k: tuple[int, ...] = (1,)
    """pass@k, for each k; scores other than 0 and 1 have pass@1 alone: their mean."""
    margin: float | None = None
    """The largest difference that does not matter, declared before looking: it opens `equivalent` and `not worse`."""
    level: float = ALPHA
    """Largest adjusted p-value that decides."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """The answer, as tidy frames."""

    baseline: str
    """The name of the side that the others are compared with."""
    arms: pd.DataFrame
    """One row per benchmark, k and side: mean, low, high, problems, seeds, samples."""
    differences: pd.DataFrame
    """One row per benchmark, k and other side: the means of both, difference, low, high, p-values, verdict, what the
    design can find."""
    sources: pd.DataFrame
    """One row per difference and source of variance: sd and its share of the variance of the difference."""
    flips: pd.DataFrame
    """One row per problem whose mean score differs, largest first: benchmark, arm, problem, score, baseline_score; the
    first of each pair with a response of both sides (`results.flips`)."""
    curves: pd.DataFrame
    """As `arms`, for k = 1, 2, 4, ... up to the fewest samples of a problem; empty where there is one sample."""
    warnings: tuple[str, ...]
    """Each in a sentence: how the sides differ besides their scores, and what was left out."""

    def __repr__(self) -> str:
        return "\n".join(verdicts.sentences(self.differences, self.baseline))


@dataclass(frozen=True)
class Pair:
    """Two sides on one benchmark, on the problems that both have."""

    benchmark: str
    arm: str
    one: Scores
    other: Scores

    @property
    def same_seeds(self) -> bool:
        """Whether the seeds belong together: both sides name the same ones."""
        return self.one.seeds == self.other.seeds

    @property
    def most(self) -> int:
        """Largest k of pass@k: the fewest samples of a cell."""
        return min(int(side.samples_SP[side.samples_SP > 0].min()) for side in (self.one, self.other))

    def estimate(self, k: int) -> Estimate:
        """The difference of pass@k."""
        return crossed.difference(_value(self.one, k), _value(self.other, k), same_seeds=self.same_seeds)

    @property
    def samples(self) -> float:
        """Mean number of samples of a cell."""
        return float(np.mean([side.samples_SP.mean() for side in (self.one, self.other)]))

    def means(self, k: int) -> tuple[float, float]:
        """The mean of pass@k of both sides."""
        one, other = (crossed.mean(_value(side, k)).test.mean for side in (self.one, self.other))
        return one, other

    def sources(self, found: Estimate) -> Sources:
        """What the difference of pass@1 is made of."""
        sizes = np.concatenate([side.samples_SP[side.samples_SP > 0] for side in (self.one, self.other)])
        noise = [self.one.noise_SP, self.other.noise_SP]
        return crossed.sources(found, noise, float(len(sizes) / (1 / sizes).sum()))


def _value(side: Scores, k: int) -> Floats:
    if k == 1:
        return side.score_SP
    correct_SP = np.rint(side.sum_SP).astype(np.int64)
    return np.asarray(stats.pass_at_k(side.samples_SP, correct_SP, k))


def compare(sides: Sequence[Side], question: Question) -> Comparison:
    """Compare every side with the baseline on every benchmark that both have.

    Raises:
        ConfigError: fewer than two sides, two of one name, no such baseline, nothing that two sides share, or pass@k
            of more samples than there are.
    """
    baseline, others = _parted(sides, question.baseline)
    by_name = {side.name: side for side in others}
    warnings: list[str] = []
    pairs = [pair for other in others for pair in _pairs(other, baseline, warnings)]
    _check_k(pairs, question.k)
    found = [(pair, k, pair.estimate(k)) for pair in pairs for k in question.k]
    rows = [_row(pair, k, one, question) for pair, k, one in found]
    rows += [row for other in others for k in question.k for row in _over_all(other.name, pairs, k, question)]
    rows.sort(key=lambda row: list(by_name).index(str(row["arm"])))
    return Comparison(
        baseline=baseline.name,
        arms=pd.DataFrame([row for side in sides for row in _means(side, question)]),
        differences=verdicts.verdicts(pd.DataFrame(rows), question.level),
        sources=pd.DataFrame([row for pair, k, one in found if k == 1 for row in _source_rows(pair, one)]),
        flips=pd.concat([_flips(pair, by_name[pair.arm], baseline) for pair in pairs], ignore_index=True),
        curves=pd.DataFrame([row for side in sides for row in _means(side, Question(k=_powers(side)))]),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _parted(sides: Sequence[Side], baseline: str) -> tuple[Side, list[Side]]:
    names = [side.name for side in sides]
    if len(sides) < 2:
        raise ConfigError("a comparison needs at least two sides", fix="mcpo compare A B")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(
            f"two sides are named {twice[0]!r}", fix="name them: --arm NAME='PATHS'", code="duplicate_name"
        )
    if baseline and baseline not in names:
        raise ConfigError(
            f"no side is named {baseline!r}: {nearest(baseline, names)}",
            fix=f"--baseline {shlex.quote(closest(baseline, names))}",
            code="unknown_name",
        )
    first = sides[names.index(baseline)] if baseline else sides[0]
    return first, [side for side in sides if side is not first]


def _pairs(side: Side, baseline: Side, warnings: list[str]) -> Iterator[Pair]:
    shared = [name for name in baseline.benchmarks if name in side.benchmarks]
    if not shared:
        raise ConfigError(
            f"{side.name} and {baseline.name} share no benchmark: {', '.join(side.benchmarks)} "
            f"against {', '.join(baseline.benchmarks)}",
            fix="--benchmark NAME where a file names none",
            code="nothing_pairs",
        )
    warnings += _facts(side, baseline, shared)
    for left in sorted({*side.benchmarks, *baseline.benchmarks} - set(shared)):
        warnings.append(f"{left} was left out: only one of {side.name} and {baseline.name} has it")
    for name in shared:
        one, other = side.scores(name), baseline.scores(name)
        common = [problem for problem in one.problems if problem in set(other.problems)]
        if len(common) < 2:
            raise ConfigError(
                f"{side.name} and {baseline.name} share {len(common)} problems of {name}: nothing pairs "
                f"({_some(one.problems)} against {_some(other.problems)})",
                fix="name the column that identifies a problem in both: --columns problem=NAME",
                code="nothing_pairs",
            )
        if lost := len(one.problems) + len(other.problems) - 2 * len(common):
            warnings.append(f"{name}: {lost} problems that only {side.name} or {baseline.name} has were left out")
        yield Pair(name, side.name, one.only(common), other.only(common))


def _some(names: Sequence[str]) -> str:
    return ", ".join([*map(repr, names[:2]), *(["..."] if len(names) > 2 else [])])


def _facts(side: Side, baseline: Side, benchmarks: Sequence[str]) -> Iterator[str]:
    """How the samples of both were made, where it differs or only one side says so."""
    differs: dict[str, list[str]] = {}
    silent: dict[str, dict[str, None]] = {}
    for benchmark in benchmarks:
        one, other = side.facts(benchmark), baseline.facts(benchmark)
        for name in sorted({*one, *other}):
            if name not in one or name not in other:
                silent.setdefault(side.name if name in other else baseline.name, {})[name] = None
            elif one[name] != other[name]:
                said = f"{name} differs: {side.name} {one[name]}; {baseline.name} {other[name]}"
                differs.setdefault(said, []).append(benchmark)
    yield from (f"{', '.join(where)}: {said}" for said, where in differs.items())
    for name, facts in silent.items():
        yield f"{name} does not say its {', '.join(facts)}: whether both sides agree in it is not known"


def _check_k(pairs: Sequence[Pair], asked: Sequence[int]) -> None:
    for pair in pairs:
        if max(asked) > pair.most:
            raise ConfigError(
                f"pass@{max(asked)} needs {max(asked)} samples of every problem; {pair.benchmark} has {pair.most}",
                fix=f"--k {pair.most}",
                code="out_of_bounds",
            )
        if max(asked) > 1 and not (pair.one.binary and pair.other.binary):
            raise ConfigError(
                f"{pair.benchmark}: pass@{max(asked)} needs scores that are 0 or 1", fix="--k 1", code="out_of_bounds"
            )


def _means(side: Side, question: Question) -> Iterator[dict[str, object]]:
    for benchmark in side.benchmarks:
        scores = side.scores(benchmark)
        most = int(scores.samples_SP[scores.samples_SP > 0].min()) if scores.binary else 1
        for k in question.k:
            if len(scores.problems) < 2 or most < k:
                continue
            found = crossed.mean(_value(scores, k))
            low, high = stats.share_interval(
                found.test.mean, found.test.error**2, found.problems * len(scores.seeds), found.test.df
            )
            yield {
                "benchmark": benchmark,
                "metric": f"pass@{k}",
                "k": k,
                "arm": side.name,
                "mean": found.test.mean,
                "low": low,
                "high": high,
                "problems": found.problems,
                "seeds": len(scores.seeds),
                "samples": int(scores.samples_SP.sum()),
            }


def _row(pair: Pair, k: int, found: Estimate, question: Question) -> dict[str, object]:
    sources = pair.sources(found)
    design = found.problems, min(found.seeds), pair.samples
    # Of pass@k, k above 1, the variance of a sample is not that of a response: what to buy is not said.
    effect = question.margin or abs(found.test.mean)
    mean, baseline_mean = pair.means(k)
    needed = sources.needed(effect, *design) if k == 1 and found.test.error > stats.ROUNDING else {}
    return {
        **_tested(pair.benchmark, pair.arm, k, found, question),
        "mean": mean,
        "baseline_mean": baseline_mean,
        "samples": pair.samples,
        "effect": effect,
        "paired_by_seed": pair.same_seeds,
        "detectable": found.test.error * noncentrality(found.test.df),
        **{f"needed_{name}": value for name, value in needed.items()},
    }


def _tested(benchmark: str, arm: str, k: int, found: Estimate, question: Question) -> dict[str, object]:
    interval, tests = found.test.interval(), verdicts.tests(found, question.margin)
    return {
        "benchmark": benchmark,
        "metric": f"pass@{k}",
        "k": k,
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


def _over_all(arm: str, pairs: Sequence[Pair], k: int, question: Question) -> Iterator[dict[str, object]]:
    """The mean difference over the benchmarks, where there are several with the same seeds."""
    own = [pair for pair in pairs if pair.arm == arm]
    seeds = {(pair.one.seeds, pair.other.seeds) for pair in own}
    if len(own) < 2 or len(seeds) > 1:
        return
    one, other = (np.hstack([_value(getattr(pair, side), k) for pair in own]) for side in ("one", "other"))
    stratum_P = np.repeat(np.arange(len(own)), [len(pair.one.problems) for pair in own])
    found = crossed.difference(one, other, stratum_P, same_seeds=own[0].same_seeds)
    mean, baseline_mean = np.mean([pair.means(k) for pair in own], axis=0)
    yield {
        **_tested(ALL, arm, k, found, question),
        "mean": mean,
        "baseline_mean": baseline_mean,
        "paired_by_seed": own[0].same_seeds,
    }


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


def _powers(side: Side) -> tuple[int, ...]:
    """1, 2, 4, ... samples, for the curves of pass@k; nothing where a curve would be one point."""
    scores = [side.scores(name) for name in side.benchmarks]
    most = max((int(one.samples_SP.max()) for one in scores if one.binary), default=1)
    return tuple(2**power for power in range(most.bit_length())) if most > 1 else ()


def _flips(pair: Pair, side: Side, baseline: Side) -> pd.DataFrame:
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
    flips = found.take(order_P[distance_P[order_P] > 0]).reset_index(drop=True)
    return with_texts(flips, side, baseline)
