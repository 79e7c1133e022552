"""The comparison of a suite's arms as a table: Tables 1 and 2 of the paper, and the same for any other suite."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

import pandas as pd

from mcpo_cli.analysis import published
from mcpo_cli.analysis.comparison import AVERAGE, UNITS, Aggregate, Choice, Comparison, Difference, K, compare
from mcpo_cli.analysis.figures import comparison as figures
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product, Section
from mcpo_cli.analysis.render import Grid
from mcpo_cli.analysis.tables import words
from mcpo_cli.config import load, plan
from mcpo_cli.config.yaml_files import read_yaml
from mcpo_cli.statistics import power
from mcpo_cli.statistics.power import ALPHA, POWER
from mcpo_cli.statistics.stats import LEAST, Effect
from mcpo_cli.statistics.variance import ADVICE

STANDS_FOR = {"toy-s": "Qwen3-8B-Base", "toy-m": "Qwen3-14B-Base"}
PLACES = {"table1": "Table 1", "table2": "Table 2"}
"""Where the paper has the table of a suite."""
PAPERS = {"pass@1": "pass@1", "best@8": "pass@8"}
"""Our name of a metric -> the paper's."""
SAMPLED = "sampling/prompts"
MARKS = {"clean": "", "dirty": " *", "unknown": " ?"}
BY_DEFAULT = Choice()


@dataclass(frozen=True)
class Row:
    """One number of the table with its uncertainty and provenance; undefined fields are None."""

    block: str
    """`measured`, `difference` (arm minus baseline), `mean`, `iqm` or `better` over tiers and models, `sd base` and
    the like (components of the headline's difference), `curve`, or the label of the published numbers."""
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
    problems: int | None = None
    samples: int | None = None
    run_ids: str | None = None
    trees: str | None = None


def comparison(suite: str, choice: Choice = BY_DEFAULT, name: str = "") -> Artifact:
    """The artifact that compares the arms of a suite, named like it or `name`.

    Raises:
        ConfigError: there is no such suite.
    """
    about, stem = plan.read(suite), load.stem(suite)
    chosen = replace(choice, baseline=choice.baseline or about.baseline, metric=choice.metric or about.metric)
    section: Section = "paper" if stem in PLACES else "beyond"

    def build(data: Mapping[str, Runs]) -> Product:
        return _product(name or stem, about.title or stem, data[suite], chosen, about.smallest_effect)

    place = "" if name else PLACES.get(stem, "")
    return Artifact(name or stem, about.title or stem, section, (suite,), build, place, source=plan.file(suite))


def of_runs(suite: str, name: str, choice: Choice) -> Artifact:
    """The artifact `name` that compares single runs, given as those of `suite`."""

    def build(data: Mapping[str, Runs]) -> Product:
        return _product(name, "Runs by id", data[suite], choice, plan.SMALLEST_EFFECT)

    return Artifact(name, "Runs by id", "beyond", (suite,), build)


def _product(name: str, title: str, runs: Runs, choice: Choice, smallest: float) -> Product:
    compared = compare(runs, choice)
    paper = read_yaml(load.EXPERIMENTS / "paper.yaml") if runs.plan.suite in PLACES else None
    table = _Table(name, title, compared, paper, _sampled(runs), smallest)
    rows = pd.DataFrame([asdict(row) for row in table.rows()], columns=list(Row.__dataclass_fields__))
    return Product(
        table.full_title(), table.sentence(), rows, list(table.grids()), table.notes(), figures.figure(compared)
    )


@dataclass(frozen=True)
class _Table:
    """A table in the making."""

    name: str
    title: str
    comparison: Comparison
    paper: dict[str, Any] | None
    """The content of `experiments/paper.yaml`; None where the paper has no such table."""
    sampled: Sequence[str]
    """A note on the prompts sampled, if that differs between arms."""
    smallest: float
    """The smallest difference that matters."""

    def full_title(self) -> str:
        spec = self.comparison.spec
        return f"{self.name}: {self.title} (scale {spec.scale}, regime {spec.regime})"

    def sentence(self) -> str:
        comparison = self.comparison
        if not comparison.headline:
            means = [
                f"{words.share(score.seeds)} on {score.tier} ({score.model})"
                for score in comparison.scores
                if (score.metric, score.at) == (comparison.metric, comparison.axes[0]) and score.tier != AVERAGE
            ]
            return f"{comparison.metric} of {comparison.baseline}, 95% interval over seeds: {', '.join(means)}."
        parts = []
        for at in comparison.axes:
            here = [one for one in comparison.headline if one.at == at]
            shown = ", ".join(f"{one.arm} {words.change(one.effect)} ({one.model})" for one in here)
            parts.append(f"at equal {_words(at)}: {shown}")
        head = f"Average {comparison.metric} minus that of {comparison.baseline}, with 95% t-interval over seeds"
        return f"{head}, {'; '.join(parts)}."

    def rows(self) -> Iterator[Row]:
        comparison = self.comparison
        for score in comparison.scores:
            row = Row("measured", score.model, score.arm, score.tier, score.metric, score.seeds.value, score.at)
            row = replace(row, low=words.number(score.seeds.low), high=words.number(score.seeds.high), seeds=score.n)
            yield self._with_runs(row, score.arm)
        for family, differences in (("headline", comparison.headline), ("others", comparison.differences)):
            for one in differences:
                row = Row("difference", one.model, one.arm, one.tier, one.metric, one.effect.mean, one.at)
                row = replace(row, p_holm=words.number(one.p_holm), family=family, seeds_above=one.above)
                yield self._with_runs(self._with_effect(row, one.effect), one.arm, comparison.baseline)
        yield from self._aggregate_rows()
        for (model, arm), found in comparison.components.items():
            for term in ("base", "seed", "problem", "rest"):
                sd = getattr(found, term)
                if not math.isnan(sd):
                    yield Row(f"sd {term}", model, arm, AVERAGE, comparison.metric, sd, baseline=comparison.baseline)
        curves = comparison.curves.groupby(["at", "model", "arm", "x"], sort=False, as_index=False)["value"].mean()
        for at, model, arm, x, value in curves.itertuples(index=False):
            yield Row("curve", model, arm, AVERAGE, comparison.metric, value, at, x)
        if self.paper:
            label = _published_label(self.paper, comparison.plan.suite)
            for model, arm, numbers in published.rows(self.paper, comparison.plan.suite):
                for (benchmark, metric), value in numbers.items():
                    yield Row(label, model, arm, benchmark, metric, value)

    def _aggregate_rows(self) -> Iterator[Row]:
        everywhere = ", ".join(self.comparison.models)
        for one in self.comparison.aggregates:
            for block, found in (("mean", one.mean), ("iqm", one.iqm), ("better", one.better)):
                if found:
                    row = Row(block, everywhere, one.arm, AVERAGE, one.metric, found.value, one.at)
                    yield replace(row, low=words.number(found.low), high=words.number(found.high))
            if one.effect:
                row = Row("mean difference", everywhere, one.arm, AVERAGE, one.metric, one.effect.mean, one.at)
                yield self._with_effect(row, one.effect)

    def _with_effect(self, row: Row, effect: Effect) -> Row:
        low, high, sd, p = map(words.number, (effect.low, effect.high, effect.sd, effect.p))
        return replace(row, low=low, high=high, sd=sd, p=p, seeds=effect.n, baseline=self.comparison.baseline)

    def _with_runs(self, row: Row, *arms: str) -> Row:
        comparison = self.comparison
        runs = comparison.runs_of(row.model, *arms)
        return replace(
            row,
            cost=comparison.where[row.at, row.model],
            problems=comparison.sizes.get(row.tier, sum(comparison.sizes.values())),
            samples=comparison.spec.eval.samples,
            run_ids=" ".join(run.run_id for run in runs),
            trees=" ".join(run.tree for run in runs),
        )

    def grids(self) -> Iterator[Grid]:
        comparison = self.comparison
        if comparison.headline:
            yield self._headline()
        at = comparison.axes[0]
        for model in comparison.models:
            yield self._scores(at, model)
            if differences := [one for one in comparison.differences if one.model == model]:
                title = f"{model} at equal {_words(at)}: minus {comparison.baseline}, paired by seed"
                header = ["arm", "tier", "metric", "difference", "95% t", "p", "p Holm", "seeds >0"]
                yield Grid(title, header, [_difference_row(one) for one in differences], labels=3)
        yield self._aggregates()
        if comparison.components:
            yield self._components()
        yield self._runs_grid()
        if self.paper:
            yield _published_grid(self.paper, comparison.plan.suite)

    def _headline(self) -> Grid:
        """One row a model and arm; the axes stand side by side."""
        comparison = self.comparison
        header = ["model", "arm"]
        for at in comparison.axes:
            header += [f"{_words(at)}: minus {comparison.baseline}", f"{_words(at)}: p Holm", f"{_words(at)}: verdict"]
        rows: dict[tuple[str, str], list[str]] = {}
        for one in sorted(comparison.headline, key=lambda one: comparison.axes.index(one.at)):
            cells = [words.change(one.effect), words.p_value(one.p_holm), one.verdict]
            rows.setdefault((one.model, one.arm), [one.model, one.arm]).extend(cells)
        title = f"{comparison.metric} averaged over tiers, minus {comparison.baseline}, paired by seed"
        return Grid(title, header, list(rows.values()), labels=2)

    def _scores(self, at: str, model: str) -> Grid:
        comparison = self.comparison
        cells = {
            (score.arm, score.tier, score.metric): words.share(score.seeds)
            for score in comparison.scores
            if (score.at, score.model) == (at, model)
        }
        tiers, rows = [*comparison.tiers, AVERAGE], []
        for metric in comparison.metrics:
            for arm in comparison.arms:
                if (arm, AVERAGE, metric) in cells:
                    name = metric if arm == comparison.arms[0] else ""
                    rows.append([name, self._label(model, arm), *(cells[arm, tier, metric] for tier in tiers)])
        return Grid(self._model_title(at, model), ["metric", "arm", *tiers], rows, labels=2)

    def _model_title(self, at: str, model: str) -> str:
        comparison = self.comparison
        sizes = [str(size) for size in comparison.sizes.values()]
        problems = f"{sizes[0]} problems per tier" if len(set(sizes)) == 1 else f"{' + '.join(sizes)} problems"
        pairs = len({(run.base_seed, run.seed) for run in comparison.runs if run.model == model})
        stands = f" (stands where the paper has {STANDS_FOR[model]})" if self.paper and model in STANDS_FOR else ""
        where = f"after {comparison.where[at, model]:,.0f} {UNITS[at]}"
        return f"{model}{stands} {where}: {pairs} seeds x {problems} x {comparison.spec.eval.samples} samples"

    def _label(self, model: str, arm: str) -> str:
        trees = {run.tree for run in self.comparison.runs_of(model, arm)}
        return arm + "".join(mark for tree, mark in MARKS.items() if tree in trees)

    def _aggregates(self) -> Grid:
        comparison = self.comparison
        target = "published" if self.paper else f"{self.smallest:g}"
        header = ["equal", "metric", "arm", "IQM", "P(better)", "difference", "detectable", f"seeds for {target}"]
        rows = []
        for one in comparison.aggregates:
            better = words.share(one.better) if one.better else "-"
            about = [_words(one.at), one.metric, one.arm, words.share(one.iqm), better]
            rows.append([*about, *self._reach(one)])
        return Grid(f"Over tiers and models, against {comparison.baseline}", header, rows, labels=3)

    def _reach(self, one: Aggregate) -> list[str]:
        """The difference, what these seeds detect, and the seeds that the target takes."""
        effect = one.effect
        if effect is None or math.isnan(effect.half_width):
            return [words.change(effect) if effect else "-", "-", "-"]
        paper, metric = self.paper, PAPERS.get(one.metric, "")
        target = _published_difference(paper, self.comparison, one.arm, metric) if paper else self.smallest
        reached = power.detectable_effect(effect.sd, effect.n)
        low, high = power.seeds_range(target, effect.sd, effect.n) if target else (None, None)
        needed = f"{words.count(low)}-{words.count(high)}" if target else "-"
        return [words.change(effect), f"{reached:.3f}", needed]

    def _components(self) -> Grid:
        header = ["model", "arm", "sd base", "sd seed", "sd problem", "sd rest", "largest share", "buy more"]
        rows = []
        for (model, arm), found in self.comparison.components.items():
            total = sum(found.parts.values())
            share = f"{found.parts[found.largest] / total:.0%} {found.largest}" if total else "-"
            sds = [words.deviation(value) for value in (found.base, found.seed, found.problem, found.rest)]
            rows.append([model, arm, *sds, share, ADVICE[found.largest] if total else "-"])
        title = f"Where the variance of {self.comparison.metric} minus that of {self.comparison.baseline} comes from"
        return Grid(title, header, rows, labels=2)

    def _runs_grid(self) -> Grid:
        header = ["model", "arm", "base", "seed", "run", "tree"]
        rows = [
            [run.model, run.arm, str(run.base_seed), str(run.seed), run.run_id, run.tree + MARKS[run.tree]]
            for run in self.comparison.runs
        ]
        return Grid("Runs and the state of their working trees", header, rows, labels=len(header))

    def notes(self) -> list[str]:
        comparison = self.comparison
        k, ungraded = comparison.k, comparison.ungraded
        trees = {run.tree for run in comparison.runs}
        seeds = min((one.effect.n for one in comparison.headline), default=LEAST)
        costs = "; ".join(
            f"{comparison.where[at, model]:,.0f} {UNITS[at]} ({model})"
            for at in comparison.axes
            for model in comparison.models
        )
        return [
            *([f"k = {k} in place of {K}: some problem has only {k} graded samples."] if k < K else []),
            *([f"Fewer than {LEAST} seeds give no interval and no p (-)."] if seeds < LEAST else []),
            f"Compared at the largest cost that all runs of a model reach: {costs}. Between two evaluations a score is "
            "interpolated; nothing is extrapolated.",
            *self.sampled,
            *([f"{ungraded} samples could not be graded and are excluded."] if ungraded else []),
            "Scores: mean over seeds and its 95% interval (Wilson's form with Student's t, which stays within 0..1).",
            f"best@{k} = 1 - (1 - c/n)^{k}: {k} draws with replacement from the n samples, the expectation of verl's "
            f"best@{k}/mean. The paper's pass@8 is this estimator (best@8): its values are not multiples of 1/30.",
            f"pass@{k} = 1 - C(n-c, {k}) / C(n, {k}): the unbiased estimator (Chen et al. 2021).",
            "Differences: paired by base policy and seed, with 95% Student t-interval and the p of the paired t-test. "
            "They hold for these problems and base policies; the table of variances says what others would add.",
            "p Holm: adjusted over a family: that of the headline are its "
            f"{len(comparison.headline)} differences (each model, arm and axis), that of the tables by tier their "
            f"{len(comparison.differences)}. above, below: p is at most {ALPHA:g}; (Holm): p Holm is, too. open: "
            "neither, which does not show that there is no difference.",
            "IQM: mean of the middle half of all scores; its interval covers 90% with 3 seeds and 92% with 5. "
            "P(better): probability that a run of the arm beats one of the baseline, a tie counts half (Agarwal et al. "
            f"2021). detectable: the difference that these seeds find with probability {POWER:g} at level {ALPHA:g}. "
            "seeds for: the seeds that find the named difference, over the 80% interval of the standard deviation.",
            "Variances: of the headline's difference at equal steps, by analysis of variance (base: between base "
            "policies; seed: between runs of one; problem: between problems; rest: problem by run, and samples). buy "
            "more: what divides the largest part. sd base is - where each base policy has one seed: sd seed has both.",
            *(["*: trained from a working tree with uncommitted changes."] if "dirty" in trees else []),
            *(["?: the state of the working tree was not recorded."] if "unknown" in trees else []),
            *([f"{self._about_published()}: {self.paper['source']['url']}."] if self.paper else []),
        ]

    def _about_published(self) -> str:
        if self.comparison.spec.scale == "paper":
            return "The published numbers come from one run each, without error bars"
        return (
            "The published numbers come from other models, data and lengths (8B and 14B on AIME and AMC, one run each, "
            "no error bars); the rows measured here are not expected to match them"
        )


def _published_difference(paper: Mapping[str, Any], compared: Comparison, arm: str, metric: str) -> float | None:
    """The paper's difference, averaged over models and benchmarks; None where it has none."""
    rows = {(model, name): numbers for model, name, numbers in published.rows(paper, compared.plan.suite)}
    pairs = [
        (numbers, rows[model, compared.baseline])
        for (model, name), numbers in rows.items()
        if name == arm and (model, compared.baseline) in rows
    ]
    found = [mine[key] - other[key] for mine, other in pairs for key in mine if key[1] == metric]
    return fmean(found) if found else None


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
    counts = ", ".join(label.format(prompts) for label, prompts in means.items())
    rollouts = runs.cells[0].spec.train.rollouts
    return [
        f"Prompts sampled per global step, {rollouts} rollouts each: {counts}. An arm with a filter samples until its "
        "batch is full of prompts with 0 < p < 1, so at equal steps it has seen more rollouts, as in the paper."
    ]


def _difference_row(one: Difference) -> Sequence[str]:
    effect = one.effect
    interval = "-" if math.isnan(effect.half_width) else f"[{effect.low:+.3f}, {effect.high:+.3f}]"
    numbers = [f"{effect.mean:+.3f}", interval, words.p_value(effect.p), words.p_value(one.p_holm)]
    return [one.arm, one.tier, one.metric, *numbers, f"{one.above}/{effect.n}"]


def _words(at: str) -> str:
    return at.replace("_", " ")


ARTIFACTS = tuple(comparison(suite) for suite in PLACES)
