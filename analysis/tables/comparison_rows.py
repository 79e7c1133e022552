"""The tidy rows of a comparison: its CSV and its JSON."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from mcpo_cli.analysis import published
from mcpo_cli.analysis.base_policies import BEFORE
from mcpo_cli.analysis.comparison import Comparison, Score
from mcpo_cli.analysis.equal_cost import AVERAGE
from mcpo_cli.analysis.tables import words
from mcpo_cli.statistics.stats import Effect


@dataclass(frozen=True)
class Row:
    """One number of the table with its uncertainty and provenance; undefined fields are None."""

    block: str
    """`measured`, `before training`, `gain` (arm minus before training), `difference` (arm minus baseline), `mean`,
    `iqm` or `better` over tiers and models, `sd base` and the like (components of the headline's difference), `curve`,
    or the label of the published numbers."""
    model: str
    arm: str
    tier: str
    metric: str
    mean: float
    at: str = "steps"
    cost: float | None = None
    """The amount of `at` at which it was measured."""
    baseline: str | None = None
    low: float | None = None
    high: float | None = None
    sd: float | None = None
    p: float | None = None
    p_holm: float | None = None
    family: str | None = None
    """The differences that p_holm is adjusted over: `headline` or `others`."""
    seeds_above: int | None = None
    seeds: int | None = None
    collapsed: int | None = None
    """Of a `gain`: number of the arm's runs that collapsed."""
    failed: int | None = None
    """Of a `gain`: number of the arm's runs that failed and have no score."""
    problems: int | None = None
    samples: int | None = None
    run_ids: str | None = None
    trees: str | None = None


def frame(comparison: Comparison, paper: Mapping[str, Any] | None) -> pd.DataFrame:
    """All rows. paper: the content of `experiments/paper.yaml`; None where the paper has no such table."""
    rows = [*_score_rows(comparison), *_difference_rows(comparison), *_aggregate_rows(comparison)]
    rows += _component_rows(comparison)
    rows += _curve_rows(comparison)
    if paper:
        label = published_label(paper, comparison.plan.suite)
        for model, arm, numbers in published.rows(paper, comparison.plan.suite):
            for (benchmark, metric), value in numbers.items():
                rows.append(Row(label, model, arm, benchmark, metric, value))
    return pd.DataFrame([asdict(row) for row in rows], columns=list(Row.__dataclass_fields__))


def published_label(paper: Mapping[str, Any], table: str) -> str:
    """What the block of the paper's numbers is called. table: the suite's name."""
    where = paper["tables"][table]["where"].split(",")[0]
    return f"published (arXiv {paper['source']['arxiv']}, {where}), not measured here"


def _score_rows(comparison: Comparison) -> Iterator[Row]:
    for score in comparison.scores:
        yield _with_runs(comparison, _of_score("measured", score), score.arm)
    for score in comparison.before:
        yield replace(_of_score(BEFORE, score), cost=0.0)
    for gain in comparison.gains:
        outcomes = [run.outcome for run in comparison.runs if (run.model, run.arm) == (gain.model, gain.arm)]
        row = Row("gain", gain.model, gain.arm, AVERAGE, gain.metric, gain.effect.mean, gain.at, baseline=BEFORE)
        row = replace(row, collapsed=outcomes.count("collapsed"), failed=outcomes.count("failed"))
        yield _with_runs(comparison, _with_effect(row, gain.effect), gain.arm)


def _of_score(block: str, score: Score) -> Row:
    row = Row(block, score.model, score.arm, score.tier, score.metric, score.seeds.value, score.at)
    return replace(row, low=words.number(score.seeds.low), high=words.number(score.seeds.high), seeds=score.n)


def _difference_rows(comparison: Comparison) -> Iterator[Row]:
    for family, differences in (("headline", comparison.headline), ("others", comparison.differences)):
        for one in differences:
            row = Row("difference", one.model, one.arm, one.tier, one.metric, one.effect.mean, one.at)
            row = replace(row, p_holm=words.number(one.p_holm), family=family, seeds_above=one.above)
            row = replace(_with_effect(row, one.effect), baseline=comparison.baseline)
            yield _with_runs(comparison, row, one.arm, comparison.baseline)


def _aggregate_rows(comparison: Comparison) -> Iterator[Row]:
    everywhere = ", ".join(comparison.models)
    for one in comparison.aggregates:
        for block, found in (("mean", one.mean), ("iqm", one.iqm), ("better", one.better)):
            if found:
                row = Row(block, everywhere, one.arm, AVERAGE, one.metric, found.value, one.at)
                yield replace(row, low=words.number(found.low), high=words.number(found.high))
        if one.effect:
            row = Row("mean difference", everywhere, one.arm, AVERAGE, one.metric, one.effect.mean, one.at)
            yield replace(_with_effect(row, one.effect), baseline=comparison.baseline)


def _component_rows(comparison: Comparison) -> Iterator[Row]:
    for (model, arm), found in comparison.components.items():
        for term in ("base", "seed", "problem", "rest"):
            sd = getattr(found, term)
            if not math.isnan(sd):
                yield Row(f"sd {term}", model, arm, AVERAGE, comparison.metric, sd, baseline=comparison.baseline)


def _curve_rows(comparison: Comparison) -> Iterator[Row]:
    curves = comparison.curves.groupby(["at", "model", "arm", "x"], sort=False, as_index=False)["value"].mean()
    for at, model, arm, x, value in curves.itertuples(index=False):
        yield Row("curve", model, arm, AVERAGE, comparison.metric, value, at, x)


def _with_effect(row: Row, effect: Effect) -> Row:
    low, high, sd, p = map(words.number, (effect.low, effect.high, effect.sd, effect.p))
    return replace(row, low=low, high=high, sd=sd, p=p, seeds=effect.n)


def _with_runs(comparison: Comparison, row: Row, *arms: str) -> Row:
    runs = comparison.runs_of(row.model, *arms)
    return replace(
        row,
        cost=comparison.where[row.at, row.model],
        problems=comparison.sizes.get(row.tier, sum(comparison.sizes.values())),
        samples=comparison.spec.eval.samples,
        run_ids=" ".join(run.run_id for run in runs),
        trees=" ".join(run.tree for run in runs),
    )
