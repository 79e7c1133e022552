"""Arms against a baseline: means, differences with their sources of variance, verdicts, and problems that changed."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from mcpo_cli.compare import aggregates, means, verdicts
from mcpo_cli.compare.differences import difference, source_rows, tested
from mcpo_cli.compare.equal_cost import AVERAGE
from mcpo_cli.compare.flips import FLIP, flips_of
from mcpo_cli.compare.pairs import Pair, left_out, together
from mcpo_cli.compare.pairs import pair as pair_of
from mcpo_cli.compare.parts import parts_of
from mcpo_cli.compare.scores import MEAN, Arm, Metric, Slice
from mcpo_cli.errors import ConfigError, mend, nearest
from mcpo_cli.render.product import Row
from mcpo_cli.statistics.crossed import Over
from mcpo_cli.statistics.power import ALPHA, look_level
from mcpo_cli.statistics.stats import Student

if TYPE_CHECKING:
    from mcpo_cli.compare.gate import Gate
    from mcpo_cli.compare.training import Training


MOST_NAMED = 3
"""Benchmarks that one warning names."""


@dataclass(frozen=True)
class Question:
    """The question about the arms; an empty field means the suite's choice, or else the default."""

    baseline: str = ""
    """Name of an arm; by default the first."""
    metrics: tuple[str, ...] = ()
    """pass@k, best@k or maj@k; the first is the headline's. By default pass@1; for runs best@8 and pass@8 are added."""
    at: tuple[str, ...] = ()
    """Costs at which runs are compared (`equal_cost.AXES`); by default steps and rollouts."""
    margin: float | None = None
    """The largest difference that does not matter, declared before looking: it opens `equivalent` and `not worse`."""
    look: tuple[int, int] | None = None
    """(i, n): this is look i of n at growing data, declared before the first look. The level of this look decides in
    place of ALPHA (`power.look_level`), and intervals widen to it, so that they hold over all looks together."""
    smallest: float | None = None
    """The difference that should be found, for which needed numbers are given; by default the margin, or else the
    observed difference."""
    over: Over | None = None
    """What intervals are about; by default other seeds for runs of mcpo and tables without problems, else both."""
    lower: bool = False
    """Lower is better: `better` and `worse`, and the side on which a margin is lost, change places."""

    @property
    def level(self) -> float:
        """Largest adjusted p-value that decides.

        Raises:
            ConfigError: the look is outside 1..n.
        """
        if self.look and not 1 <= self.look[0] <= self.look[1]:
            look, looks = self.look
            last = max(1, looks)
            raise ConfigError(
                f"look {look} of {looks}: the first is 1, and the last is {last}",
                fix=f"--look {last}/{last}",
                code="out_of_bounds",
            )
        return ALPHA if self.look is None else look_level(*self.look)


@dataclass(frozen=True, repr=False)
class Comparison:
    """The answer, as tidy frames. Columns `at` and `model` are empty for logs; NaN is a number that is not known."""

    baseline: str
    metric: str
    """The metric of the headline."""
    arms: pd.DataFrame
    """One row per slice, benchmark (and AVERAGE, their mean with equal weights), metric and arm: mean with its 95 %
    interval, problems, seeds, samples."""
    differences: pd.DataFrame
    """One row per slice, benchmark, metric and other arm: difference, low, high, sd over seeds, p-values as they are
    and adjusted over the family, verdict, the means of both, and what the design can find. The family `headline` is
    what the comparison is about: the headline's metric, averaged over benchmarks; `others` are all other differences at
    the first cost. `test` is equal for differences that are one comparison, such as equal steps and equal rollouts that
    end at the same scores. `part_of` is the benchmark that a row is a part of (a filter of a task or a category, with
    its own family); else empty."""
    sources: pd.DataFrame
    """One row per difference and source of variance: sd and its share of the variance of the difference."""
    flips: pd.DataFrame
    """One row per problem whose mean score differs, largest first: model, benchmark, arm, problem, score,
    baseline_score; for logs, the first flips of each pair have a response of both arms (`logs.with_texts`)."""
    aggregates: pd.DataFrame
    """One row per cost, metric and arm, over benchmarks and models (`aggregates.py`); empty with one benchmark."""
    curves: pd.DataFrame
    """The columns of `arms`, for pass@k with k = 1, 2, 4, ... up to the fewest samples of a problem; empty for runs,
    whose scores at a cost may lie between two evaluations."""
    level: float
    """Largest adjusted p-value that decided; intervals of differences cover 1 minus it."""
    margin: float | None = None
    """The margin that was declared."""
    lower: bool = False
    """Lower is better."""
    warnings: tuple[str, ...] = ()
    """Sentences on differences of the arms besides their scores, and on data that were left out."""
    training: "Training | None" = None
    """Facts that only runs of mcpo have; None for logs."""
    slices: Sequence[Slice] = ()
    """The scores that were compared."""
    students: Sequence[Student] = ()
    """The estimate behind each row of `differences`, for other tests of it."""
    gate: "Gate | None" = None
    """The answer to the rules of a gate; None without rules."""

    def __repr__(self) -> str:
        return "\n".join(
            f"{row['arm']} against {self.baseline}: {row['verdict']} on "
            f"{', '.join(filter(None, (row['benchmark'], row['model'], row['at'])))} ({row['difference']:+.3f})"
            for row in records(self.differences, metric=self.metric)
        )

    @property
    def trained(self) -> "Training":
        """The facts that only runs have.

        Raises:
            ValueError: the comparison is of logs.
        """
        if self.training is None:
            raise ValueError("logs say nothing of training")
        return self.training

    @property
    def headline(self) -> pd.DataFrame:
        """The differences that the comparison is about."""
        return self.differences[self.differences["family"] == "headline"]

    @property
    def of_history(self) -> bool:
        """True if the baseline is a history of runs."""
        return len(self.differences) > 0 and self.differences["over"].iloc[0] == "history"

    @property
    def names(self) -> list[str]:
        """The arms in order."""
        return list(dict.fromkeys(self.arms["arm"]))

    @property
    def models(self) -> list[str]:
        """The models in order."""
        return list(dict.fromkeys(self.arms["model"]))

    @property
    def axes(self) -> list[str]:
        """The costs at which arms are compared."""
        return list(dict.fromkeys(self.arms["at"]))

    @property
    def shown_axes(self) -> list[str]:
        """The `axes` at which some headline difference is not the same as at an earlier axis."""
        before: set[int] = set()
        axes: list[str] = []
        for at in self.axes:
            tests = {row["test"] for row in records(self.headline, at=at)}
            if not axes or tests - before:
                axes.append(at)
            before |= tests
        return axes


def records(frame: pd.DataFrame, **wanted: Any) -> list[Row]:
    """The rows of a frame whose columns have these values."""
    rows: Any = frame.to_dict("records")
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def compare(slices: Sequence[Slice], question: Question) -> Comparison:
    """Compare every arm with the baseline, slice by slice, on every benchmark that both have.

    Raises:
        ConfigError: two arms of one name, no such baseline, no benchmark that two arms share, pass@k of more samples
            than exist, a metric that scores lack, or a look outside 1..n.
    """
    metrics = list(dict.fromkeys(map(Metric.parse, question.metrics or ("pass@1",))))
    whole_runs = all(len(scores.problems) == 1 for arm in slices[0].arms for scores in arm.scores.values())
    of_seeds = whole_runs or all(arm.named_seeds for arm in slices[0].arms)
    over = question.over or ("seeds" if of_seeds else "both")
    if whole_runs and over != "seeds":
        raise ConfigError("there are no problems: intervals can be over seeds only", fix="--over seeds")
    baselines = [_baseline(part.arms, question.baseline) for part in slices]
    warnings: list[str] = []
    rows: list[Row] = []
    sources: list[Row] = []
    flips: list[pd.DataFrame] = []
    for part, baseline in zip(slices, baselines, strict=True):
        labels, is_first = {"at": part.at, "model": part.model}, part.at == slices[0].at
        for arm in (arm for arm in part.arms if arm is not baseline):
            pairs = [pair_of(arm, baseline, name) for name in _shared(arm, baseline, warnings)]
            _check(pairs, metrics, question.margin)
            rows += [labels | row for row in _differences(pairs, metrics, question, over, every=is_first)]
            if is_first:
                rows += [labels | row for row in _of_parts(pairs, arm, baseline, metrics[0], question, over)]
                warnings += [] if question.lower else _unanswered(pairs, baseline)
                warnings += [text for pair in pairs for text in pair.limits(pair.estimate(metrics[0], over))]
            if is_first and not whole_runs:
                sources += [labels | row for pair in pairs for row in source_rows(pair)]
                flips += [flips_of(part.model, pair) for pair in pairs]
    differences = verdicts.decided(verdicts.numbered(rows), question.level, lower=question.lower)
    return Comparison(
        baseline=baselines[0].name,
        metric=str(metrics[0]),
        arms=pd.DataFrame([row for part in slices for row in means.of_slice(part, metrics, over)]),
        differences=differences.drop(columns="student"),
        students=tuple(differences["student"]),
        sources=pd.DataFrame(sources),
        flips=pd.concat(flips, ignore_index=True) if flips else pd.DataFrame(columns=list(FLIP)),
        aggregates=pd.DataFrame(aggregates.over_benchmarks(slices, metrics, baselines[0].name, lower=question.lower)),
        curves=pd.DataFrame([row for part in slices for row in means.curves(part, over)]),
        level=question.level,
        margin=question.margin,
        lower=question.lower,
        warnings=tuple(dict.fromkeys(warnings)),
        slices=tuple(slices),
    )


def differences_of(arm: Arm, baseline: Arm, question: Question, metric: Metric, over: Over) -> pd.DataFrame:
    """The differences in one metric, as `compare` gives them, without the numbers of a design that would find more.

    Raises:
        ConfigError: see `pairs.pair`.
    """
    pairs = [pair_of(arm, baseline, name) for name in _shared(arm, baseline, [])]
    headline, all_pairs = _headline(pairs)
    rows = [
        {"at": "", "model": "", **tested(pair, metric, question, over)}
        | {"family": "headline" if pair is headline else "others", "part_of": ""}
        for pair in all_pairs
    ]
    return verdicts.decided(verdicts.numbered(rows), question.level, lower=question.lower)


def _headline(pairs: Sequence[Pair]) -> tuple[Pair | None, list[Pair]]:
    """The pair that a comparison is about, the mean or the only benchmark, if there is one; and all pairs."""
    mean = together(AVERAGE, pairs)
    return (pairs[0] if len(pairs) == 1 else mean), [*pairs, *([mean] if mean else [])]


def _differences(
    pairs: Sequence[Pair], metrics: Sequence[Metric], question: Question, over: Over, *, every: bool
) -> Iterator[Row]:
    """The differences of one arm: of all pairs in all metrics, or the headline's only."""
    headline, all_pairs = _headline(pairs)
    for pair in all_pairs if every else [headline] if headline else []:
        for metric in metrics if every else metrics[:1]:
            family = "headline" if pair is headline and metric == metrics[0] else "others"
            yield difference(pair, metric, question, over) | {"family": family, "part_of": ""}


def _of_parts(
    pairs: Sequence[Pair], arm: Arm, baseline: Arm, metric: Metric, question: Question, over: Over
) -> Iterator[Row]:
    """The differences on filters and categories of benchmarks."""
    for pair in pairs:
        for family, part in parts_of(pair, arm, baseline):
            yield difference(part, metric, question, over) | {"family": family, "part_of": pair.benchmark}


def _unanswered(pairs: Sequence[Pair], baseline: Arm) -> Iterator[str]:
    """A sentence on benchmarks on which no answer of both arms is right."""
    wrong: dict[str, list[str]] = {}
    for pair in pairs:
        if not (pair.one.sum_SP.any() or pair.other.sum_SP.any()):
            wrong.setdefault(pair.arm, []).append(pair.benchmark)
    for arm, names in wrong.items():
        remainder = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        yield (
            f"{', '.join(names[:MOST_NAMED])}{remainder}: no answer of {arm} or {baseline.name} is correct: either the "
            "grader found no answer in the responses, or the golds have another form than it compares "
            "(mcpo components check data FILE)"
        )


def _baseline(arms: Sequence[Arm], wanted: str) -> Arm:
    names = [arm.name for arm in arms]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(
            f"two sides are named {twice[0]!r}", fix="name them: --arm NAME='PATHS'", code="duplicate_name"
        )
    if wanted and wanted not in names:
        raise ConfigError(
            f"no arm is named {wanted!r}: {nearest(wanted, names)}",
            fix=mend("--baseline {}", wanted, map(shlex.quote, names)),
            code="unknown_name",
        )
    return arms[names.index(wanted)] if wanted else arms[0]


def _shared(arm: Arm, baseline: Arm, warnings: list[str]) -> list[str]:
    """The benchmarks that both arms have; warns of other benchmarks, and of problems that only one arm has."""
    shared = [name for name in baseline.scores if name in arm.scores]
    if not shared:
        raise ConfigError(
            f"{arm.name} and {baseline.name} share no benchmark: {', '.join(arm.scores)} "
            f"against {', '.join(baseline.scores)}",
            fix="logs of the same benchmarks; where a file names none: --benchmark NAME",
            code="nothing_pairs",
        )
    for left in sorted({*arm.scores, *baseline.scores} - set(shared)):
        warnings.append(f"{left} was left out: only one of {arm.name} and {baseline.name} has it")
    warnings += [text for name in shared if (text := left_out(arm, baseline, name))]
    return shared


def _check(pairs: Sequence[Pair], metrics: Sequence[Metric], margin: float | None) -> None:
    """Raise ConfigError if scores do not have a metric, or lie within a margin."""
    for pair in pairs:
        for metric in metrics:
            counted = metric.kind == "maj"
            tables = [scores for scores in (pair.one, pair.other) if counted or metric not in scores.values]
            limit = min((scores.most for scores in tables), default=metric.k)
            if metric != MEAN and not all(scores.binary for scores in tables):
                raise ConfigError(
                    f"{pair.benchmark}: {metric} needs scores that are 0 or 1", fix="--metric pass@1",
                    code="out_of_bounds",
                )  # fmt: skip
            if metric.k > limit:
                raise ConfigError(
                    f"{metric} needs {metric.k} samples of every problem; {pair.benchmark} has {limit}",
                    fix=f"--metric {metric._replace(k=limit)}",
                    code="out_of_bounds",
                )
    if margin and margin >= 1 and all(pair.share for pair in pairs):
        raise ConfigError(
            f"--margin {margin:g}: scores are within 0 and 1, so a margin of 1 excludes nothing",
            fix="--margin 0.01",
            code="out_of_bounds",
        )
