"""Tables 1 and 2 of the paper: compare the arms of a suite with a baseline and format the result."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from mcpo_cli.analysis import published
from mcpo_cli.analysis.comparison import BOOTSTRAP_SEED, DRAWS, Comparison, Difference, K, Score, compare
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.render import Grid
from mcpo_cli.config import load
from mcpo_cli.config.yaml_files import read_yaml
from mcpo_cli.statistics.stats import Effect, Interval

STANDS_FOR = {"toy-s": "Qwen3-8B-Base", "toy-m": "Qwen3-14B-Base"}
SAMPLED = "sampling/prompts"
MARKS = {"clean": "", "dirty": " *", "unknown": " ?"}


@dataclass(frozen=True)
class Row:
    """One number of the table with its uncertainty and provenance; undefined fields are None."""

    block: str
    """`measured` (mean and t-interval), `difference` (arm minus baseline) or the label of the published numbers."""
    model: str
    arm: str
    tier: str
    metric: str
    mean: float
    baseline: str | None = None
    t_low: float | None = None
    t_high: float | None = None
    bootstrap_low: float | None = None
    bootstrap_high: float | None = None
    p: float | None = None
    p_holm: float | None = None
    seeds_above: int | None = None
    seeds: int | None = None
    problems: int | None = None
    samples: int | None = None
    run_ids: str | None = None
    trees: str | None = None


def comparison_table(name: str, title: str, baseline: str) -> Artifact:
    """The artifact of a table of the paper: compares the arms of the suite `name` with the arm `baseline`."""

    def build(data: Mapping[str, Runs]) -> Product:
        paper = read_yaml(load.EXPERIMENTS / "paper.yaml")
        return _Table(name, title, compare(data[name], baseline), paper, _sampled(data[name])).product()

    return Artifact(name, title, "paper", (name,), build, f"Table {name[-1]}")


def suite_table(suite: str, title: str, file: Path) -> Artifact:
    """The artifact of a suite that the paper has no table for: its arms against the first one."""
    name = load.stem(suite)

    def build(data: Mapping[str, Runs]) -> Product:
        runs = data[suite]
        return _Table(name, title, compare(runs, runs.cells[0].arm), None, _sampled(runs)).product()

    return Artifact(name, title, "beyond", (suite,), build, source=file)


@dataclass(frozen=True)
class _Table:
    """A table in the making.

    name: of its counterpart in `paper`, the content of `experiments/paper.yaml`, too; None where it has none.
    sampled: a note on what the arms were given, where it was not the same.
    """

    name: str
    """Its name, also that of its counterpart in `paper`."""
    title: str
    comparison: Comparison
    paper: dict[str, Any] | None
    sampled: Sequence[str]
    """A note on the prompts sampled, if that differs between arms."""

    def product(self) -> Product:
        rows = pd.DataFrame([asdict(row) for row in self._rows()], columns=list(Row.__dataclass_fields__))
        return Product(self._title(), self._sentence(), rows, list(self._grids()), self._notes())

    def _sentence(self) -> str:
        comparison, parts = self.comparison, []
        if comparison.arms == [comparison.baseline]:
            means = [
                f"{_mean(score.seeds)} on {score.tier} ({score.model})"
                for score in comparison.scores
                if score.metric == "pass@1"
            ]
            return f"pass@1 of {comparison.baseline}, 95% t-interval over seeds: {', '.join(means)}."
        for model in comparison.models:
            for arm in comparison.arms:
                if arm != comparison.baseline:
                    average = comparison.average(model, arm, "pass@1")
                    spread = "n=1" if average.n == 1 else f"± {average.half_width:.3f}"
                    parts.append(f"{arm} {average.mean:+.3f} {spread} ({model})")
        head = f"Average pass@1 minus that of {comparison.baseline}, with 95% t-interval over seeds"
        return f"{head}: {', '.join(parts)}."

    def _title(self) -> str:
        spec = self.comparison.spec
        where = f"scale {spec.scale}, regime {spec.regime}, after global step {spec.train.steps}"
        return f"{self.name}: {self.title} ({where})"

    def _rows(self) -> Iterator[Row]:
        yield from map(self._measured, self.comparison.scores)
        yield from map(self._difference, self.comparison.differences)
        if self.paper:
            for model, arm, numbers in published.rows(self.paper, self.name):
                for (benchmark, metric), value in numbers.items():
                    yield Row(_published_label(self.paper, self.name), model, arm, benchmark, metric, value)

    def _measured(self, score: Score) -> Row:
        row = Row("measured", score.model, score.arm, score.tier, score.metric, score.seeds.mean)
        return self._with_runs(row, score.seeds, score.arm)

    def _difference(self, result: Difference) -> Row:
        baseline, effect = self.comparison.baseline, result.effect
        row = Row(
            "difference",
            result.model,
            result.arm,
            result.tier,
            result.metric,
            effect.mean,
            baseline=baseline,
            bootstrap_low=_number(effect.low),
            bootstrap_high=_number(effect.high),
            p=_number(effect.p),
            p_holm=_number(result.p_holm),
            seeds_above=result.above,
        )
        return self._with_runs(row, result.seeds, result.arm, baseline)

    def _with_runs(self, row: Row, seeds: Interval, *arms: str) -> Row:
        runs = self.comparison.runs_of(row.model, *arms)
        return replace(
            row,
            t_low=_number(seeds.low),
            t_high=_number(seeds.high),
            seeds=seeds.n,
            problems=self.comparison.sizes[row.tier],
            samples=self.comparison.spec.eval.samples,
            run_ids=" ".join(run.run_id for run in runs),
            trees=" ".join(run.tree for run in runs),
        )

    def _grids(self) -> Iterator[Grid]:
        for model in self.comparison.models:
            yield self._scores(model)
            yield from self._difference_grids(model)
        yield self._runs_grid()
        if self.paper:
            yield _published_grid(self.paper, self.name)

    def _scores(self, model: str) -> Grid:
        cells, comparison = self._score_cells(model), self.comparison
        rows = []
        for metric in comparison.metrics:
            for arm in comparison.arms:
                name = metric if arm == comparison.arms[0] else ""
                rows.append([name, self._label(model, arm), *(cells[arm, tier, metric] for tier in comparison.tiers)])
        return Grid(self._model_title(model), ["metric", "arm", *comparison.tiers], rows, labels=2)

    def _score_cells(self, model: str) -> dict[tuple[str, str, str], str]:
        scores = [score for score in self.comparison.scores if score.model == model]
        return {(score.arm, score.tier, score.metric): _mean(score.seeds) for score in scores}

    def _model_title(self, model: str) -> str:
        spec = self.comparison.spec
        sizes = [str(self.comparison.sizes[tier]) for tier in self.comparison.tiers]
        problems = f"{sizes[0]} problems per tier" if len(set(sizes)) == 1 else f"{' + '.join(sizes)} problems"
        seeds = len({run.seed for run in self.comparison.runs if run.model == model})
        stands = f" (stands where the paper has {STANDS_FOR[model]})" if self.paper and model in STANDS_FOR else ""
        return f"{model}{stands}: {seeds} seeds x {problems} x {spec.eval.samples} samples"

    def _label(self, model: str, arm: str) -> str:
        trees = {run.tree for run in self.comparison.runs_of(model, arm)}
        return arm + "".join(mark for tree, mark in MARKS.items() if tree in trees)

    def _difference_grids(self, model: str) -> Iterator[Grid]:
        comparison = self.comparison
        header = ["tier", "metric", "difference", "95% bootstrap", "95% t", "p", "p Holm", "seeds >0"]
        for arm in comparison.arms:
            results = [result for result in comparison.differences if (result.model, result.arm) == (model, arm)]
            if results:
                title = f"{model}: {arm} minus {comparison.baseline}, paired by problem and seed"
                yield Grid(title, header, [_difference_row(result) for result in results], labels=2)

    def _runs_grid(self) -> Grid:
        header = ["model", "arm", "seed", "run", "tree"]
        rows = [
            [run.model, run.arm, str(run.seed), run.run_id, run.tree + MARKS[run.tree]] for run in self.comparison.runs
        ]
        return Grid("Runs and the state of their working trees", header, rows, labels=len(header))

    def _about_published(self) -> str:
        if self.comparison.spec.scale == "paper":
            return "The published numbers come from one run each, without error bars"
        return (
            "The published numbers come from other models, data and lengths (8B and 14B on AIME and AMC, one run each, "
            "no error bars); the rows measured here are not expected to match them"
        )

    def _notes(self) -> list[str]:
        comparison = self.comparison
        k, ungraded = comparison.k, comparison.ungraded
        trees = {run.tree for run in comparison.runs}
        return [
            *([f"k = {k} in place of {K}: some problem has only {k} graded samples."] if k < K else []),
            *self.sampled,
            *([f"{ungraded} samples could not be graded and are excluded."] if ungraded else []),
            "Scores: mean over seeds ± half-width of the 95% Student t-interval; one seed gives no interval (n=1).",
            f"best@{k} = 1 - (1 - c/n)^{k}: {k} draws with replacement from the n samples, the expectation of verl's "
            f"best@{k}/mean. The paper's pass@8 is this estimator (best@8): its values are not multiples of 1/30.",
            f"pass@{k} = 1 - C(n-c, {k}) / C(n, {k}): the unbiased estimator (Chen et al. 2021).",
            f"Differences: 95% percentile interval and two-sided p of {DRAWS} bootstrap draws of seeds and problems "
            f"(numpy seed {BOOTSTRAP_SEED}); p Holm: adjusted over the {len(comparison.differences)} differences of "
            "this table; seeds >0: seeds in which the difference is positive.",
            "With few seeds the bootstrap interval is too narrow if seeds differ more than problems and samples "
            "explain: it then covers 75% with 3 seeds, 84% with 5, 90% with 10. The t-interval over seeds keeps its "
            "95% there. A difference is unsettled if only one of the two intervals excludes 0.",
            *(["*: trained from a working tree with uncommitted changes."] if "dirty" in trees else []),
            *(["?: the state of the working tree was not recorded."] if "unknown" in trees else []),
            *([f"{self._about_published()}: {self.paper['source']['url']}."] if self.paper else []),
        ]


def _published_grid(paper: dict[str, Any], table: str) -> Grid:
    printed = list(published.rows(paper, table))
    columns = list(printed[0][2])
    rows = [[model, arm, *(f"{numbers[column]:.4f}" for column in columns)] for model, arm, numbers in printed]
    header = ["model", "arm", *(f"{name} {metric}" for name, metric in columns)]
    return Grid(_published_label(paper, table), header, rows, labels=2)


def _published_label(paper: dict[str, Any], table: str) -> str:
    where = paper["tables"][table]["where"].split(",")[0]
    return f"published (arXiv {paper['source']['arxiv']}, {where}), not measured here"


def _sampled(runs: Runs) -> list[str]:
    """A note if some arms sampled more prompts per global step than others, as with DAPO's filter."""
    steps = runs.steps()
    if SAMPLED not in steps:
        return []
    groups = steps.groupby(["model", "arm"], sort=False)[SAMPLED]
    means = {f"{arm} {{:.0f}} ({model})": float(prompts.mean()) for (model, arm), prompts in groups}
    if len(set(means.values())) < 2:
        return []
    counts = ", ".join(words.format(prompts) for words, prompts in means.items())
    rollouts = runs.cells[0].spec.train.rollouts
    return [
        f"Prompts sampled per global step, {rollouts} rollouts each: {counts}. An arm with a filter samples until its "
        "batch is full of prompts with 0 < p < 1, so at the same step it has seen more rollouts, as in the paper."
    ]


def _difference_row(result: Difference) -> Sequence[str]:
    effect, seeds = result.effect, result.seeds
    numbers = [_bounds(effect), _bounds(seeds), f"{effect.p:.4f}", f"{result.p_holm:.4f}"]
    uncertainty = ["n=1"] * len(numbers) if seeds.n == 1 else numbers
    return [result.tier, result.metric, f"{effect.mean:+.3f}", *uncertainty, f"{result.above}/{seeds.n}"]


def _bounds(interval: Effect | Interval) -> str:
    return f"[{interval.low:+.3f}, {interval.high:+.3f}]"


def _mean(interval: Interval) -> str:
    """`0.412 ± 0.031`, or `0.412 n=1` for one seed."""
    spread = "n=1" if interval.n == 1 else f"± {interval.half_width:.3f}"
    return f"{interval.mean:.3f} {spread}"


def _number(value: float) -> float | None:
    """`value`; None for NaN."""
    return None if math.isnan(value) else value


ARTIFACTS = (
    comparison_table("table1", "DAPO against MCPO", baseline="DAPO"),
    comparison_table("table2", "Ablations of MCPO", baseline="MCPO"),
)
