"""Logs of any tool as scores, compared; with the texts of problems whose score changed."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd

from mcpo_cli.compare.comparison import Comparison, Question, compare, records
from mcpo_cli.compare.log import TEXTS, Side
from mcpo_cli.compare.majority import majority
from mcpo_cli.compare.parts import merged
from mcpo_cli.compare.scores import Arm, Metric, Scores, Slice
from mcpo_cli.errors import ConfigError

SHOWN = 50
"""Most problems per pair of sides and benchmark whose responses are given: the problems that changed most."""
LONGEST = 4000
"""Most characters of a text; a longer one loses its middle, as answers are at the end."""
LEAST_PERCENT = 10
"""Scores of one side above this number are percentages, if another side's scores are within 0..1."""
OF_PROBLEM = ("prompt", "gold")
"""Texts of a problem; all other texts are of a response, one for each side."""


def of_logs(sides: Sequence[Side], question: Question) -> Comparison:
    """Compare every side with the baseline on every benchmark that both have.

    Raises:
        ConfigError: fewer than two sides, or see `comparison.compare`.
    """
    if len(sides) < 2:
        raise ConfigError("a comparison needs at least two sides", fix="mcpo compare A B")
    metrics = [Metric.parse(text) for text in question.metrics]
    shared = set.intersection(*(set(side.benchmarks) for side in sides))
    percentages, units = ({}, []) if question.lower else _units(sides, shared)
    arms = [_arm(side, metrics, shared, percentages) for side in sides]
    comparison = compare([Slice(arms)], question)
    by_name = {side.name: side for side in sides}
    baseline = by_name[comparison.baseline]
    others = [side for side in sides if side is not baseline]
    notes = [note for side in sides for log in side.logs for note in log.notes]
    warnings = [warning for side in others for warning in _facts(side, baseline)] + list(_copies(baseline))
    warnings += [warning for side in (baseline, *others) for warning in _repeated_ids(side)]
    warnings += [warning for side in sides for warning in _other_filters(side, shared)]
    groups = comparison.flips.groupby(["arm", "benchmark"], sort=False)
    flips = [with_texts(part.reset_index(drop=True), by_name[str(arm)], baseline) for (arm, _), part in groups]
    return replace(
        comparison,
        differences=comparison.differences.assign(other_answers=_other_answers(comparison, by_name)),
        flips=pd.concat(flips, ignore_index=True) if flips else comparison.flips,
        warnings=tuple(dict.fromkeys((*percentages.values(), *units, *warnings, *comparison.warnings, *notes))),
    )


def _units(sides: Sequence[Side], shared: Collection[str]) -> tuple[dict[tuple[str, str], str], list[str]]:
    """The unit of a side's scores above 1, where the scores of other sides are within 0..1.

    By side and benchmark: a sentence if the scores are percentages, because some exceed LEAST_PERCENT and all lie
    within 0..100; and questions on smaller scores, which may be in another unit.
    """
    percentages: dict[tuple[str, str], str] = {}
    questions = []
    for name in sorted(shared):
        tables = {side.name: side.scores(name) for side in sides}
        shares = [side for side, table in tables.items() if table.share]
        for side in (side for side in tables if shares and side not in shares):
            cell_SP = tables[side].score_SP
            low, high = np.nanmin(cell_SP), np.nanmax(cell_SP)
            if low >= 0 and LEAST_PERCENT < high <= 100:
                sentence = f"{name}: the scores of {side} were taken as percentages, because those of others are shares"
                percentages[side, name] = sentence
            elif low >= 0:
                questions.append(
                    f"{name}: scores of {side} reach {high:.4g}, and those of {', '.join(shares)} lie within 0 and 1: "
                    "is the unit the same?"
                )
    return percentages, questions


def _arm(
    side: Side, metrics: Sequence[Metric], shared: Collection[str], percentages: Collection[tuple[str, str]]
) -> Arm:
    """The scores of a side. shared: the benchmarks of all sides: a task is the mean over its filters among them."""
    scores: dict[str, Scores] = {}
    parts: dict[str, dict[str, Scores]] = {}
    for task, names in side.tasks.items():
        tables = {name: side.scores(name) for name in names}
        for name in (name for name in names if (side.name, name) in percentages):
            whole = tables[name]
            tables[name] = replace(whole, sum_SP=whole.sum_SP / 100, square_SP=whole.square_SP / 100**2)
        tables = {name: _with_majority(side, name, table, metrics) for name, table in tables.items()}
        common = {name: table for name, table in tables.items() if name in shared}
        if len(common) > 1:
            scores[task], parts[task] = merged(common, metrics), common
        else:
            scores |= common or tables
    return Arm(side.name, scores, parts=parts)


def _other_filters(side: Side, shared: Collection[str]) -> Iterator[str]:
    """A sentence on each filter of a task that some side lacks, where all sides have another filter of it."""
    for task, names in side.tasks.items():
        extras = [name for name in names if name not in shared]
        if 0 < len(extras) < len(names):
            yield f"{', '.join(extras)} was left out: not all sides have this filter of {task}"


def _with_majority(side: Side, benchmark: str, scores: Scores, metrics: Sequence[Metric]) -> Scores:
    sizes = [metric.k for metric in metrics if metric.kind == "maj"]
    values = {Metric("maj", k): value for k, value in majority(side, benchmark, scores, sizes).items()}
    return replace(scores, values=values)


def _facts(side: Side, baseline: Side) -> Iterator[str]:
    """Settings of the samples that differ between both sides, or that only one side states."""
    differs: dict[str, list[str]] = {}
    silent: dict[str, dict[str, None]] = {}
    for benchmark in (name for name in baseline.benchmarks if name in side.benchmarks):
        texts, bases = side.prompts(benchmark), baseline.prompts(benchmark)
        if not texts or not bases:
            for name in [side.name] * (not texts and bool(bases)) + [baseline.name] * (not bases and bool(texts)):
                silent.setdefault(name, {})["prompts"] = None
        common = texts.keys() & bases.keys()
        if count := sum(texts[problem] != bases[problem] for problem in common):
            sentence = f"prompts differ on {count} of the {len(common)} problems that both have"
            differs.setdefault(sentence, []).append(benchmark)
        values, base_values = side.facts(benchmark), baseline.facts(benchmark)
        for name in sorted({*values, *base_values}):
            if name not in values or name not in base_values:
                silent.setdefault(side.name if name in base_values else baseline.name, {})[name] = None
            elif values[name] != base_values[name]:
                sentence = f"{name} differs: {side.name} {values[name]}; {baseline.name} {base_values[name]}"
                differs.setdefault(sentence, []).append(benchmark)
    yield from (f"{', '.join(benchmarks)}: {sentence}" for sentence, benchmarks in differs.items())
    for name, facts in silent.items():
        yield f"{name} does not say its {', '.join(facts)}: whether both sides agree in it is not known"


def _other_answers(comparison: Comparison, sides: Mapping[str, Side]) -> list[float]:
    """For each difference of a benchmark: the problems with equal scores whose most frequent answer is another one.

    NaN where a side has no answers, and for differences of several benchmarks together.
    """

    @cache
    def answers(name: str, benchmark: str) -> pd.Series:
        return _answers(sides[name], benchmark)

    counts = []
    for row in records(comparison.differences):
        pair = [answers(name, row["benchmark"]) for name in (row["arm"], comparison.baseline)]
        table = pd.concat(pair, axis=1, join="inner", keys=("one", "other"))
        moved = comparison.flips.loc[
            (comparison.flips["arm"] == row["arm"]) & (comparison.flips["benchmark"] == row["benchmark"])
        ]
        rows = table[~table.index.isin(moved["problem"])]
        counts.append(float((rows["one"] != rows["other"]).sum()) if len(table) else math.nan)
    return counts


def _answers(side: Side, benchmark: str) -> pd.Series:
    """The most frequent answer to each problem, of equally frequent ones the first by the alphabet."""
    if "answer" not in side.samples:
        return pd.Series(dtype=object)
    samples = side.samples[side.samples["benchmark"] == benchmark].dropna(subset=["answer"])
    counts = samples.groupby(["problem", "answer"], observed=True, sort=False).size().reset_index(name="samples")
    counts = counts.assign(problem=counts["problem"].astype(str), answer=counts["answer"].astype(str))
    winners = counts.sort_values(["samples", "answer"], ascending=[False, True]).drop_duplicates("problem")
    return winners.set_index("problem")["answer"]


def _copies(side: Side) -> Iterator[str]:
    """Prompts that several problems of a benchmark have: such problems are no independent draws."""
    if "prompt" not in side.samples:
        return
    prompts = side.samples.dropna(subset=["prompt"]).drop_duplicates(["benchmark", "problem"])
    for benchmark, rows in prompts.groupby("benchmark", observed=True):
        if copies := int(rows.duplicated("prompt").sum()):
            yield (
                f"{benchmark}: {copies} of {len(rows)} problems have the prompt of another one and count as "
                "independent of it: the interval is too narrow. A column `cluster` says which problems belong together"
            )


def _repeated_ids(side: Side) -> Iterator[str]:
    """Problems with several prompts: their rows count as samples of one problem, which they are probably not."""
    if "prompt" not in side.samples:
        return
    prompts = side.samples[["benchmark", "problem", "prompt"]].dropna().drop_duplicates()
    for benchmark, rows in prompts.groupby("benchmark", observed=True):
        if repeated := rows.loc[rows.duplicated("problem"), "problem"].nunique():
            yield (
                f"{benchmark}: {repeated} of {rows['problem'].nunique()} problems have several prompts in {side.name}, "
                "and count as one problem each: if their names repeat, --columns problem=prompt tells them apart"
            )


def with_texts(flips: pd.DataFrame, side: Side, baseline: Side) -> pd.DataFrame:
    """Add the columns `log.TEXTS` of the logs to the first SHOWN of `flips`, which are of one benchmark, largest first.

    The side with the higher score on a problem gives the first of its best samples, the other side the first of its
    worst samples, to show the difference. Columns of texts of `baseline` begin with that word: `baseline_response`.
    """
    head = flips.head(SHOWN)
    if head.empty:
        return flips
    rises = head.set_index("problem")["score"] > head.set_index("problem")["baseline_score"]
    arm_texts, base_texts = _texts(side, head, rises), _texts(baseline, head, ~rises)
    texts = base_texts.add_prefix("baseline_").rename(columns={f"baseline_{name}": name for name in OF_PROBLEM})
    table = arm_texts.combine_first(texts) if not arm_texts.empty else texts
    return flips.join(table, on="problem")


def _texts(side: Side, flips: pd.DataFrame, best: pd.Series) -> pd.DataFrame:
    """By problem: the texts of one sample, the best where `best` is true, else the worst."""
    names = [name for name in TEXTS if name in side.samples]
    if not names:
        return pd.DataFrame(index=pd.Index([], name="problem"))
    samples, task = side.samples, str(flips["benchmark"].iloc[0])
    of_these = samples["problem"].isin(flips["problem"]) & samples["benchmark"].isin(side.tasks.get(task, [task]))
    rows = samples.loc[of_these, ["problem", "correct", *names]]
    rows = rows.assign(problem=rows["problem"].astype(str))
    scores = rows.groupby("problem")["correct"]
    high, low = scores.idxmax(), scores.idxmin()
    selection = rows.loc[high.where(best.reindex(high.index), low)].set_index("problem")[names]
    texts: pd.DataFrame = selection.map(_cut, na_action="ignore")
    return texts


def _cut(text: object) -> str:
    content = str(text)
    if len(content) <= LONGEST:
        return content
    left_out = len(content) - LONGEST
    return f"{content[: LONGEST // 4]}\n[... {left_out} characters ...]\n{content[-(LONGEST - LONGEST // 4) :]}"
