"""The comparison of a suite's arms as an artifact: the same table, page and figure as `mcpo compare SUITE` gives."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from mcpo_cli.compare import figures, page
from mcpo_cli.compare.comparison import Comparison, Question, records
from mcpo_cli.compare.equal_cost import AVERAGE, BEFORE
from mcpo_cli.compare.runs import of_runs
from mcpo_cli.compare.training import Training
from mcpo_cli.config import plan, presets
from mcpo_cli.measures.frames import Runs
from mcpo_cli.render.markup import Grid
from mcpo_cli.render.product import RESULTS, Artifact, Product, Row

COLUMNS = (
    "block", "model", "arm", "tier", "metric", "mean", "at", "cost", "baseline", "low", "high", "sd", "p",
    "p_adjusted", "verdict", "family", "seeds_above", "seeds", "collapsed", "failed", "problems", "samples", "run_ids",
    "trees",
)  # fmt: skip
"""Columns of the CSV file: one number per row with its uncertainty and provenance. `block`: measured, before training,
gain (arm minus before training), difference (arm minus baseline), mean, iqm, better or mean difference over tiers and
models, sd base and the like (sources of the headline difference's variance), curve, or what `Beside` adds."""


@dataclass(frozen=True)
class Beside:
    """Numbers that an artifact shows beside the measured ones."""

    rows: list[Row] = field(default_factory=list)
    """More rows of the CSV file."""
    grids: list[Grid] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def nothing(compared: Comparison) -> Beside:
    """Nothing beside the measured numbers."""
    return Beside()


def comparison(
    suite: str,
    section: str = RESULTS,
    place: str = "",
    beside: Callable[[Comparison], Beside] = nothing,
) -> Artifact:
    """The artifact that compares the arms of a suite, named like it.

    Raises:
        ConfigError: there is no such suite.
    """
    content, name = plan.read(suite), presets.stem(suite)
    metrics = (content.metric,) if content.metric else ()
    question = Question(content.baseline, metrics, smallest=content.smallest_effect)

    def build(data: Mapping[str, Runs]) -> Product:
        return _product(f"{name}: {content.title or name}", data[suite], question, beside)

    return Artifact(
        name, content.title or name, section, (suite,), build, place, failed_too=True, source=plan.file(suite)
    )


def _product(title: str, runs: Runs, question: Question, beside: Callable[[Comparison], Beside]) -> Product:
    result = of_runs(runs, question)
    additions, main_page = beside(result), page.page(result)
    data = pd.DataFrame([*_rows(result, result.trained), *additions.rows], columns=COLUMNS)
    spec = result.trained.spec
    return Product(
        title=f"{title} (scale {spec.scale}, regime {spec.regime})",
        sentence=main_page.sentence,
        data=data,
        grids=[*main_page.grids, *additions.grids],
        notes=[*main_page.notes, *additions.notes],
        figure=figures.curves(result),
        brief=page.remarks(result),
    )


def _rows(result: Comparison, training: Training) -> Iterator[Row]:
    """All rows of the CSV file."""
    for row in records(result.arms):
        yield {"block": "measured", **_named(row), **_runs(training, row, row["arm"])}
    for row in records(training.before):
        yield {"block": BEFORE, **_named(row), "at": result.axes[0], "cost": 0.0}
    average_rows = result.arms.loc[result.arms["benchmark"] == AVERAGE, "problems"]
    problems = int((average_rows if len(average_rows) else result.arms["problems"]).iloc[0])
    for row in records(training.gains):
        outcomes = [run["outcome"] for run in records(training.runs, model=row["model"], arm=row["arm"])]
        outcome_counts = {name: outcomes.count(name) for name in ("collapsed", "failed")}
        labels = {"block": "gain", "tier": AVERAGE, "baseline": BEFORE, **outcome_counts}
        yield {**row, **labels, "problems": problems, **_runs(training, row, row["arm"])}
    for row in records(result.differences):
        labels = {"block": "difference", "baseline": result.baseline, "seeds_above": row["above"]}
        yield {**_named(row), "mean": row["difference"], **labels, **_runs(training, row, row["arm"], result.baseline)}
    for row in records(result.aggregates):
        yield from _over_tiers(result, row)
    labels = {"tier": AVERAGE, "metric": result.metric}
    for row in records(result.sources):
        numbers = {"block": f"sd {row['source']}", "mean": row["sd"], "at": "steps", "baseline": result.baseline}
        yield {**numbers, "model": row["model"], "arm": row["arm"], **labels}
    curves = training.curves.groupby(["at", "model", "arm", "x"], sort=False)["value"].mean().reset_index()
    for row in records(curves):
        yield {"block": "curve", **row, **labels, "cost": row["x"], "mean": row["value"]}


def _named(row: Row) -> Row:
    """The row, with its benchmark as the tier."""
    return {**row, "tier": row["benchmark"]}


def _runs(training: Training, row: Row, *arms: str) -> Row:
    """Columns of a measured row: its cost, samples and runs."""
    runs = training.scored(row["model"], *arms)
    return {
        "cost": training.where[row["at"], row["model"]],
        "samples": training.spec.eval.samples,
        "run_ids": " ".join(runs["run_id"]),
        "trees": " ".join(runs["tree"]),
    }


def _over_tiers(result: Comparison, aggregate: Row) -> Iterator[Row]:
    row: dict[str, Any] = {"model": ", ".join(result.models), "tier": AVERAGE}
    row |= {key: aggregate[key] for key in ("arm", "metric", "at")}
    for block in ("mean", "iqm", "better"):
        if not pd.isna(aggregate[block]):
            ends = {key: aggregate[f"{block}_{key}"] for key in ("low", "high")}
            yield {"block": block, **row, "mean": aggregate[block], **ends}
    if not pd.isna(aggregate["difference_mean"]):
        effect = {key: aggregate[f"difference_{key}"] for key in ("mean", "low", "high", "sd", "p", "seeds")}
        yield {"block": "mean difference", **row, **effect, "baseline": result.baseline}
