"""What comparison tables share: from a declaration and a plan to a report on the disk and on the terminal."""

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mcpo_cli.analysis import render
from mcpo_cli.analysis.comparison import BOOTSTRAP_SEED, DRAWS, Comparison, Difference, K, Score, compare
from mcpo_cli.analysis.render import Grid
from mcpo_cli.analysis.stats import Effect, Interval
from mcpo_cli.config import load
from mcpo_cli.plan import Plan
from mcpo_cli.runs.attempts import tier_problems
from mcpo_cli.runs.journal import write_atomic

STANDS_FOR = {"toy-s": "Qwen3-8B-Base", "toy-m": "Qwen3-14B-Base"}
DIGITS = 10
"""Of a number in a file: beyond them the order of summation shows."""
MARKS = {"clean": "", "dirty": " *", "unknown": " ?"}


@dataclass(frozen=True)
class Row:
    """One number of the table with all that belongs to it; None where it is not defined.

    block: measured (mean, t-interval), difference (arm minus baseline) or the label of the published block.
    """

    block: str
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


@dataclass(frozen=True)
class ComparisonTable:
    """A table of arms against the arm `baseline`. published: its counterpart in `experiments/paper.yaml`."""

    name: str
    title: str
    suite: str
    baseline: str
    published: str

    def build(self, plan: Plan, reports_dir: Path) -> "BuiltTable":
        """Write `<scale>/<name>.md`, `.csv` and `.tex` below `reports_dir`; the same runs give the same bytes.

        Raises:
            MissingCells: a run of the plan is not done.
            ConfigError: the runs differ in more than arm, model and seed.
        """
        comparison = compare(plan, self.baseline)
        stem = reports_dir / comparison.spec.scale / self.name
        built = BuiltTable(self, comparison, load.read_yaml(load.EXPERIMENTS / "paper.yaml"), stem)
        files = (built.markdown(), built.csv(), built.tex())
        for path, content in zip(built.paths, files, strict=True):
            write_atomic(path, content)
        return built


@dataclass(frozen=True)
class BuiltTable:
    """A table that was built. paper: the content of `experiments/paper.yaml`. stem: its files without suffix."""

    table: ComparisonTable
    comparison: Comparison
    paper: dict[str, Any]
    stem: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files: Markdown, CSV, LaTeX."""
        return tuple(self.stem.with_suffix(suffix) for suffix in (".md", ".csv", ".tex"))

    def text(self, width: int = 100) -> str:
        """For a terminal: one row a metric and arm, one column a tier."""
        return render.text(self._title(), list(self._grids(self._scores_long)), self._notes(), width)

    def markdown(self) -> str:
        """One row an arm, one column a tier and metric."""
        return render.markdown(self._title(), list(self._grids(self._scores_wide)), self._notes())

    def tex(self) -> str:
        """One row an arm, one column a tier and metric."""
        return render.tex(self._title(), list(self._grids(self._scores_wide)), self._notes())

    def csv(self) -> str:
        """One line a number, the columns of `Row`."""
        file = io.StringIO()
        writer = csv.DictWriter(file, list(Row.__dataclass_fields__), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in self._rows())
        return file.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Everything in the table as plain data; undefined numbers are None."""
        return {
            "name": self.table.name,
            "title": self._title(),
            "plan_id": self.comparison.plan.plan_id,
            "command": self.comparison.plan.command,
            "files": [str(path) for path in self.paths],
            "rows": [asdict(row) for row in self._rows()],
            "notes": self._notes(),
        }

    def _title(self) -> str:
        spec = self.comparison.spec
        where = f"scale {spec.scale}, regime {spec.regime}, after global step {spec.train.steps}"
        return f"{self.table.name}: {self.table.title} ({where})"

    def _rows(self) -> Iterator[Row]:
        yield from map(self._measured, self.comparison.scores)
        yield from map(self._difference, self.comparison.differences)
        for model, arm, numbers in self._published():
            for (benchmark, metric), value in numbers.items():
                yield Row(self._published_label(), model, arm, benchmark, metric, value)

    def _measured(self, score: Score) -> Row:
        row = Row("measured", score.model, score.arm, score.tier, score.metric, round(score.seeds.mean, DIGITS))
        return self._with_runs(row, score.seeds, score.arm)

    def _difference(self, result: Difference) -> Row:
        baseline, effect = self.comparison.baseline, result.effect
        row = Row(
            "difference",
            result.model,
            result.arm,
            result.tier,
            result.metric,
            round(effect.mean, DIGITS),
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
            problems=tier_problems(self.comparison.spec, row.tier),
            samples=self.comparison.spec.eval.samples,
            run_ids=" ".join(run.run_id for run in runs),
            trees=" ".join(run.tree for run in runs),
        )

    def _grids(self, scores: Callable[[str], Grid]) -> Iterator[Grid]:
        for model in self.comparison.models:
            yield scores(model)
            yield from self._difference_grids(model)
        yield self._runs_grid()
        yield self._published_grid()

    def _scores_long(self, model: str) -> Grid:
        cells, comparison = self._score_cells(model), self.comparison
        rows = []
        for metric in comparison.metrics:
            for arm in comparison.arms:
                name = metric if arm == comparison.arms[0] else ""
                rows.append([name, self._label(model, arm), *(cells[arm, tier, metric] for tier in comparison.tiers)])
        return Grid(self._model_title(model), ["metric", "arm", *comparison.tiers], rows, labels=2)

    def _scores_wide(self, model: str) -> Grid:
        cells, comparison = self._score_cells(model), self.comparison
        columns = [(tier, metric) for tier in comparison.tiers for metric in comparison.metrics]
        header = ["arm", *(f"{tier} {metric}" for tier, metric in columns)]
        rows = [[self._label(model, arm), *(cells[arm, *column] for column in columns)] for arm in comparison.arms]
        return Grid(self._model_title(model), header, rows)

    def _score_cells(self, model: str) -> dict[tuple[str, str, str], str]:
        scores = [score for score in self.comparison.scores if score.model == model]
        return {(score.arm, score.tier, score.metric): _mean(score.seeds) for score in scores}

    def _model_title(self, model: str) -> str:
        spec = self.comparison.spec
        sizes = [str(tier_problems(spec, tier)) for tier in self.comparison.tiers]
        problems = f"{sizes[0]} problems a tier" if len(set(sizes)) == 1 else f"{' + '.join(sizes)} problems"
        seeds = len({run.seed for run in self.comparison.runs if run.model == model})
        stands = f" (stands where the paper has {STANDS_FOR[model]})" if model in STANDS_FOR else ""
        return f"{model}{stands}: {seeds} seeds x {problems} x {spec.eval.samples} samples"

    def _label(self, model: str, arm: str) -> str:
        trees = {run.tree for run in self.comparison.runs_of(model, arm)}
        return arm + "".join(mark for tree, mark in MARKS.items() if tree in trees)

    def _difference_grids(self, model: str) -> Iterator[Grid]:
        comparison = self.comparison
        header = ["tier", "metric", "difference", "95% bootstrap", "95% t", "p", "p Holm", "seeds >0"]
        for arm in comparison.arms:
            found = [result for result in comparison.differences if (result.model, result.arm) == (model, arm)]
            if found:
                title = f"{model}: {arm} minus {comparison.baseline}, paired by problem and seed"
                yield Grid(title, header, [_difference_row(result) for result in found], labels=2)

    def _runs_grid(self) -> Grid:
        header = ["model", "arm", "seed", "run", "tree"]
        rows = [
            [run.model, run.arm, str(run.seed), run.run_id, run.tree + MARKS[run.tree]] for run in self.comparison.runs
        ]
        return Grid("Runs and the working tree each was trained from", header, rows, labels=len(header))

    def _published_grid(self) -> Grid:
        published = list(self._published())
        columns = list(published[0][2])
        rows = [[model, arm, *(f"{numbers[column]:.4f}" for column in columns)] for model, arm, numbers in published]
        header = ["model", "arm", *(f"{name} {metric}" for name, metric in columns)]
        return Grid(self._published_label(), header, rows, labels=2)

    def _published_label(self) -> str:
        where = self.paper["tables"][self.table.published]["where"].split(",")[0]
        return f"published (arXiv {self.paper['source']['arxiv']}, {where}), not measured here"

    def _about_published(self) -> str:
        if self.comparison.spec.task.name == "math":
            return "The published numbers are of one run each, without error bars"
        return (
            "The published numbers come from other models, data and lengths (8B and 14B on AIME and AMC, one run each, "
            "no error bars) and are no target for the rows measured here"
        )

    def _published(self) -> Iterator[tuple[str, str, dict[tuple[str, str], float]]]:
        """Model, arm and the numbers by (benchmark, metric) of each published row."""
        benchmarks = self.paper["settings"]["evaluation"]["benchmarks"]
        for row in self.paper["tables"][self.table.published]["rows"]:
            numbers = {(name, metric): value for name in benchmarks for metric, value in row[name].items()}
            yield row["model"], row["arm"], numbers

    def _notes(self) -> list[str]:
        comparison = self.comparison
        k, ungraded = comparison.k, comparison.ungraded
        trees = {run.tree for run in comparison.runs}
        return [
            *([f"k = {k}, not {K}: not every problem has more graded samples."] if k < K else []),
            *([f"{ungraded} samples could not be graded and count nowhere."] if ungraded else []),
            "Scores: mean over seeds ± half-width of the 95% Student t-interval; one seed gives none (n=1).",
            f"best@{k} = 1 - (1 - c/n)^{k}: {k} of the n samples with replacement, the expectation of verl's "
            f"best@{k}/mean. The paper's pass@8 is this estimator (best@8): its values are no multiples of 1/30.",
            f"pass@{k} = 1 - C(n-c, {k}) / C(n, {k}): the unbiased estimator (Chen et al. 2021).",
            f"Differences: 95% percentile interval and two-sided p of {DRAWS} bootstrap draws of seeds and problems "
            f"(numpy seed {BOOTSTRAP_SEED}); p Holm: adjusted over the {len(comparison.differences)} differences of "
            "this table; seeds >0: seeds in which the difference is positive.",
            "With few seeds the bootstrap is too narrow where seeds differ more than problems and samples explain: it "
            "then covers 75% with 3 seeds, 84% with 5, 90% with 10. The t-interval over seeds keeps its 95% there; "
            "a difference that only one of the two separates from 0 is not settled.",
            *(["* trained from a working tree with uncommitted changes."] if "dirty" in trees else []),
            *(["? the state of the working tree was not recorded."] if "unknown" in trees else []),
            f"{self._about_published()}: {self.paper['source']['url']}.",
            f"Made by: {comparison.plan.command} (plan {comparison.plan.plan_id})",
        ]


def _difference_row(result: Difference) -> Sequence[str]:
    effect, seeds = result.effect, result.seeds
    numbers = [_bounds(effect), _bounds(seeds), f"{effect.p:.4f}", f"{result.p_holm:.4f}"]
    uncertainty = ["n=1"] * len(numbers) if seeds.n == 1 else numbers
    return [result.tier, result.metric, f"{effect.mean:+.3f}", *uncertainty, f"{result.above}/{seeds.n}"]


def _bounds(interval: Effect | Interval) -> str:
    return f"[{interval.low:+.3f}, {interval.high:+.3f}]"


def _mean(interval: Interval) -> str:
    """`0.412 ± 0.031`, or the mean with n=1."""
    spread = "n=1" if interval.n == 1 else f"± {interval.half_width:.3f}"
    return f"{interval.mean:.3f} {spread}"


def _number(value: float) -> float | None:
    """`value`, rounded; None for NaN."""
    return None if math.isnan(value) else round(value, DIGITS)
