"""Sides against a baseline, benchmark by benchmark: means, differences with their sources of variance, and flips."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from mcpo_cli.compare import verdicts
from mcpo_cli.compare.log import TEXTS, Scores, Side
from mcpo_cli.compare.pairs import MEAN, Metric, Pair, majority
from mcpo_cli.errors import ConfigError, mend, nearest
from mcpo_cli.statistics import crossed, stats
from mcpo_cli.statistics.crossed import Estimate
from mcpo_cli.statistics.power import ALPHA, look_level, noncentrality

ALL = "all benchmarks"
"""Name of the mean over benchmarks, which have equal weights."""
SHOWN = 50
"""Most problems per pair of sides and benchmark whose responses are given, those that changed most."""
LONGEST = 4000
"""Most characters of a text; a longer one loses its middle, as answers are at the end."""
OF_PROBLEM = ("prompt", "gold")
"""Texts of a problem; all others are texts of a response, one for each side."""


@dataclass(frozen=True)
class Question:
    """The question about the sides."""

    baseline: str = ""
    """Name of a side; empty for the first."""
    k: tuple[int, ...] = (1,)
    """pass@k, for each k; scores other than 0 and 1 have pass@1 alone: their mean."""
    majority: tuple[int, ...] = ()
    """maj@k, for each k; needs logs with answers and scores that are 0 or 1."""
    margin: float | None = None
    """The largest difference that does not matter, declared before looking: it opens `equivalent` and `not worse`."""
    look: tuple[int, int] | None = None
    """(i, n): this is look i of n at growing data, declared before the first. The level of that look decides in place
    of ALPHA (`power.look_level`), and intervals widen to it, so that they hold over all looks together."""

    @property
    def decides(self) -> float:
        """Largest adjusted p-value that decides."""
        return ALPHA if self.look is None else look_level(*self.look)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All that is compared: pass@k, then maj@k."""
        return (*(Metric("pass", k) for k in self.k), *(Metric("maj", k) for k in self.majority))


@dataclass(frozen=True, repr=False)
class Comparison:
    """The answer, as tidy frames."""

    baseline: str
    """The name of the side that the others are compared with."""
    arms: pd.DataFrame
    """One row per benchmark, metric (with its k) and side: mean, low, high, problems, seeds, samples."""
    differences: pd.DataFrame
    """One row per benchmark, metric and other side: the means of both, difference, low, high, p-values, verdict, and
    the difference that the design can find."""
    sources: pd.DataFrame
    """One row per difference and source of variance: sd and its share of the variance of the difference."""
    flips: pd.DataFrame
    """One row per problem whose mean score differs, largest first: benchmark, arm, problem, score, baseline_score; the
    first of each pair with a response of both sides (`with_texts`)."""
    curves: pd.DataFrame
    """The columns of `arms`, for k = 1, 2, 4, ... up to the fewest samples of a problem; empty with one sample."""
    level: float
    """Largest adjusted p-value that decided; intervals of differences cover 1 minus it."""
    warnings: tuple[str, ...]
    """Sentences on differences of the sides besides their scores, and on data that were left out."""

    def __repr__(self) -> str:
        return "\n".join(verdicts.sentences(self.differences, self.baseline))


def compare(sides: Sequence[Side], question: Question) -> Comparison:
    """Compare every side with the baseline on every benchmark that both have.

    Raises:
        ConfigError: fewer than two sides, two sides of one name, no such baseline, no problem that two sides share,
            pass@k or maj@k of more samples than exist, maj@k without answers, or a look outside 1..n.
    """
    if question.look and not 1 <= question.look[0] <= question.look[1]:
        raise ConfigError(f"look {question.look[0]} of {question.look[1]}: a look lies in 1..n", code="out_of_bounds")
    baseline, others = _parted(sides, question.baseline)
    by_name = {side.name: side for side in others}
    warnings: list[str] = []
    pairs = [pair for other in others for pair in _pairs(other, baseline, question, warnings)]
    _check_k(pairs, question.metrics)
    found = [(pair, metric, pair.estimate(metric)) for pair in pairs for metric in question.metrics]
    warnings += [limit for pair, metric, one in found if metric == MEAN for limit in pair.limits(one)]
    rows = [_row(pair, metric, one, question) for pair, metric, one in found]
    rows += [row for other in others for k in question.metrics for row in _over_all(other.name, pairs, k, question)]
    rows.sort(key=lambda row: list(by_name).index(str(row["arm"])))
    return Comparison(
        baseline=baseline.name,
        arms=pd.DataFrame([row for side in sides for row in _means(side, question)]),
        differences=verdicts.verdicts(pd.DataFrame(rows), question.decides),
        sources=pd.DataFrame([row for pair, metric, one in found if metric == MEAN for row in _source_rows(pair, one)]),
        flips=pd.concat([_flips(pair, by_name[pair.arm], baseline) for pair in pairs], ignore_index=True),
        curves=pd.DataFrame([row for side in sides for row in _means(side, Question(k=_powers(side)))]),
        level=question.decides,
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
            fix=mend("--baseline {}", baseline, map(shlex.quote, names)),
            code="unknown_name",
        )
    first = sides[names.index(baseline)] if baseline else sides[0]
    return first, [side for side in sides if side is not first]


def _scores(side: Side, benchmark: str, question: Question) -> Scores:
    found = side.scores(benchmark)
    return replace(found, majority=majority(side, benchmark, found, question.majority))


def _pairs(side: Side, baseline: Side, question: Question, warnings: list[str]) -> Iterator[Pair]:
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
        one, other = (_scores(each, name, question) for each in (side, baseline))
        theirs = set(other.problems)
        common = [problem for problem in one.problems if problem in theirs]
        if len(common) < 2:
            raise ConfigError(
                f"{side.name} and {baseline.name} have {len(common) or 'no'} problem of {name} in common, "
                f"too few to pair: {side.name} has {_some(one.problems)}, {baseline.name} has {_some(other.problems)}",
                fix="name the column that identifies a problem in both: --columns problem=NAME",
                code="nothing_pairs",
            )
        if lost := len(one.problems) + len(other.problems) - 2 * len(common):
            warnings.append(f"{name}: {lost} problems that only {side.name} or {baseline.name} has were left out")
        yield Pair(name, side.name, one.only(common), other.only(common))


def _some(names: Sequence[str]) -> str:
    return ", ".join([*map(repr, names[:2]), *(["..."] if len(names) > 2 else [])])


def _facts(side: Side, baseline: Side, benchmarks: Sequence[str]) -> Iterator[str]:
    """Settings of the samples that differ between both sides, or that only one side states."""
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


def _check_k(pairs: Sequence[Pair], asked: Sequence[Metric]) -> None:
    most = max(asked, key=lambda metric: metric.k)
    for pair in pairs:
        if most.k > pair.most:
            raise ConfigError(
                f"{most} needs {most.k} samples of every problem; {pair.benchmark} has {pair.most}",
                fix=f"--k {pair.most}",
                code="out_of_bounds",
            )
        if most.k > 1 and not (pair.one.binary and pair.other.binary):
            raise ConfigError(
                f"{pair.benchmark}: {most} needs scores that are 0 or 1", fix="--k 1", code="out_of_bounds"
            )


def _means(side: Side, question: Question) -> Iterator[dict[str, object]]:
    for benchmark in side.benchmarks:
        scores = _scores(side, benchmark, question)
        most = int(scores.samples_SP[scores.samples_SP > 0].min()) if scores.binary else 1
        for metric in question.metrics:
            if len(scores.problems) < 2 or most < metric.k:
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
    # For pass@k and maj@k the variance of a sample is not that of a response, so no needed numbers are given.
    effect = question.margin or abs(found.test.mean)
    mean, baseline_mean = pair.means(metric)
    needed = sources.needed(effect, *design) if metric == MEAN and found.test.error > stats.ROUNDING else {}
    return {
        **_tested(pair.benchmark, pair.arm, metric, found, question),
        "mean": mean,
        "baseline_mean": baseline_mean,
        "samples": pair.samples,
        "effect": effect,
        "paired_by_seed": pair.same_seeds,
        "detectable": found.test.error * noncentrality(found.test.df),
        **{f"needed_{name}": value for name, value in needed.items()},
    }


def _tested(benchmark: str, arm: str, metric: Metric, found: Estimate, question: Question) -> dict[str, object]:
    return {
        "benchmark": benchmark,
        "metric": str(metric),
        "k": metric.k,
        "arm": arm,
        "family": ALL if benchmark == ALL else "benchmarks",
        **verdicts.judged(found, question.margin, question.decides),
        "problems": found.problems,
        "seeds": min(found.seeds),
        "over_seeds": found.over_seeds,
    }


def _over_all(arm: str, pairs: Sequence[Pair], metric: Metric, question: Question) -> Iterator[dict[str, object]]:
    """The mean difference over the benchmarks, if there are several with the same seeds."""
    own = [pair for pair in pairs if pair.arm == arm]
    seeds = {(pair.one.seeds, pair.other.seeds) for pair in own}
    if len(own) < 2 or len(seeds) > 1:
        return
    one, other = (np.hstack([metric.of(getattr(pair, side)) for pair in own]) for side in ("one", "other"))
    stratum_P = np.repeat(np.arange(len(own)), [len(pair.one.problems) for pair in own])
    same_seeds = all(pair.same_seeds for pair in own)
    found = crossed.difference(one, other, stratum_P, same_seeds=same_seeds)
    mean, baseline_mean = np.mean([pair.means(metric) for pair in own], axis=0)
    yield {
        **_tested(ALL, arm, metric, found, question),
        "mean": mean,
        "baseline_mean": baseline_mean,
        "paired_by_seed": same_seeds,
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
    """1, 2, 4, ... samples, for the curves of pass@k; empty if a curve would be one point."""
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


def largest_flips(flips: pd.DataFrame, most: int) -> pd.DataFrame:
    """The first `most` flips by the size of the change, of all benchmarks and sides together."""
    size = (flips["score"] - flips["baseline_score"]).abs()
    return flips.loc[size.sort_values(ascending=False, kind="stable").index[:most]]


def with_texts(flips: pd.DataFrame, side: Side, baseline: Side) -> pd.DataFrame:
    """Add the columns `results.log.TEXTS` of the logs to the first SHOWN flips: of one benchmark, largest first.

    The side with the higher score on a problem gives the first of its best samples, the other the first of its worst,
    to show the difference. Columns of texts of `baseline` begin with that word: `baseline_response`.
    """
    shown = flips.head(SHOWN)
    if shown.empty:
        return flips
    rises = shown.set_index("problem")["score"] > shown.set_index("problem")["baseline_score"]
    mine, theirs = _texts(side, shown, rises), _texts(baseline, shown, ~rises)
    texts = theirs.add_prefix("baseline_").rename(columns={f"baseline_{name}": name for name in OF_PROBLEM})
    whole = mine.combine_first(texts) if not mine.empty else texts
    return flips.join(whole, on="problem")


def _texts(side: Side, shown: pd.DataFrame, best: pd.Series) -> pd.DataFrame:
    """By problem: the texts of one sample, the best where `best` is true, else the worst."""
    names = [name for name in TEXTS if name in side.samples]
    if not names:
        return pd.DataFrame(index=pd.Index([], name="problem"))
    samples = side.samples
    of_these = samples["problem"].isin(shown["problem"]) & (samples["benchmark"] == shown["benchmark"].iloc[0])
    own = samples.loc[of_these, ["problem", "correct", *names]]
    own = own.assign(problem=own["problem"].astype(str))
    found = own.groupby("problem")["correct"]
    high, low = found.idxmax(), found.idxmin()
    chosen = own.loc[high.where(best.reindex(high.index), low)].set_index("problem")[names]
    texts: pd.DataFrame = chosen.map(_cut, na_action="ignore")
    return texts


def _cut(text: object) -> str:
    whole = str(text)
    if len(whole) <= LONGEST:
        return whole
    left_out = len(whole) - LONGEST
    return f"{whole[: LONGEST // 4]}\n[... {left_out} characters ...]\n{whole[-(LONGEST - LONGEST // 4) :]}"
