"""The comparison of a suite's arms as a table: Tables 1 and 2 of the paper, and the same for any other suite."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from mcpo_cli.analysis import published
from mcpo_cli.analysis.comparison import Aggregate, Choice, Comparison, compare
from mcpo_cli.analysis.differences import Difference
from mcpo_cli.analysis.equal_cost import AVERAGE, UNITS
from mcpo_cli.analysis.figures import comparison as figures
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product, Section
from mcpo_cli.analysis.render import Grid
from mcpo_cli.analysis.tables import comparison_notes, comparison_rows, words
from mcpo_cli.config import load, plan
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.statistics import power
from mcpo_cli.statistics.variance import ADVICE

STANDS_FOR = {"toy-s": "Qwen3-8B-Base", "toy-m": "Qwen3-14B-Base"}
PLACES = {"table1": "Table 1", "table2": "Table 2"}
"""Where the paper has the table of a suite."""
PAPERS = {"pass@1": "pass@1", "best@8": "pass@8"}
"""Our name of a metric -> the paper's."""
MARKS = {"clean": "", "dirty": " *", "unknown": " ?"}
BY_DEFAULT = Choice()


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
    title, source = about.title or stem, plan.file(suite)
    return Artifact(name or stem, title, section, (suite,), build, place, failed_too=True, source=source)


def of_runs(suite: str, name: str, choice: Choice) -> Artifact:
    """The artifact `name` that compares single runs, given as those of `suite`."""

    def build(data: Mapping[str, Runs]) -> Product:
        return _product(name, "Runs by id", data[suite], choice, plan.SMALLEST_EFFECT)

    return Artifact(name, "Runs by id", "beyond", (suite,), build, failed_too=True)


def _product(name: str, title: str, runs: Runs, choice: Choice, smallest: float) -> Product:
    compared = compare(runs, choice)
    paper = read_yaml(load.EXPERIMENTS / "paper.yaml") if runs.plan.suite in PLACES else None
    table = _Table(name, title, compared, paper, smallest)
    rows, notes = comparison_rows.frame(compared, paper), comparison_notes.notes(compared, runs, paper)
    return Product(table.full_title(), table.sentence(), rows, list(table.grids()), notes, figures.figure(compared))


@dataclass(frozen=True)
class _Table:
    """A table in the making."""

    name: str
    title: str
    comparison: Comparison
    paper: dict[str, Any] | None
    """The content of `experiments/paper.yaml`; None where the paper has no such table."""
    smallest: float
    """The smallest difference that matters."""

    def full_title(self) -> str:
        spec = self.comparison.spec
        return f"{self.name}: {self.title} (scale {spec.scale}, regime {spec.regime})"

    def sentence(self) -> str:
        """The differences, how the arms stand to the policies before training, and what ended otherwise."""
        comparison = self.comparison
        ended = {name: len(comparison.ended(name)) for name in ("failed", "collapsed")}
        counts = " and ".join(f"{number} {name}" for name, number in ended.items() if number)
        outcomes = [f"Of {len(comparison.runs)} runs {counts}."] if counts else []
        same = comparison_notes.same_runs(comparison)
        return " ".join([self._found(), *words.against_before(comparison), *outcomes, *same])

    def _found(self) -> str:
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
            shown = ", ".join(self._in_words(one) for one in here)
            parts.append(f"at equal {_words(at)}: {shown}")
        head = f"Average {comparison.metric} minus that of {comparison.baseline}, with 95% t-interval over seeds"
        return f"{head}, {'; '.join(parts)}."

    def _in_words(self, one: Difference) -> str:
        said = "" if one.verdict == "open" else f"; {self.comparison.in_words(one)}"
        return f"{one.arm} {words.change(one.effect)} ({one.model}{said})"

    def grids(self) -> Iterator[Grid]:
        comparison = self.comparison
        if comparison.headline:
            yield self._headline()
        yield self._gains()
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
            planned = sum((run.model, run.arm) == (one.model, one.arm) for run in comparison.runs)
            pairs = "" if one.effect.n == planned else f" ({one.effect.n} of {planned} pairs)"
            cells = [words.change(one.effect) + pairs, words.p_value(one.p_holm), one.verdict]
            rows.setdefault((one.model, one.arm), [one.model, one.arm]).extend(cells)
        title = f"{comparison.metric} averaged over tiers, minus {comparison.baseline}, paired by seed"
        return Grid(title, header, list(rows.values()), labels=2)

    def _gains(self) -> Grid:
        """One row a model and arm: how far it ends from the policies before training, and how its runs ended."""
        comparison = self.comparison
        header = ["model", "arm", "before"]
        for at in comparison.axes:
            header += [f"{_words(at)}: end minus before", f"{_words(at)}: below"]
        rows: dict[tuple[str, str], list[str]] = {}
        for one in sorted(comparison.gains, key=lambda one: comparison.axes.index(one.at)):
            if one.metric == comparison.metric:
                row = rows.setdefault((one.model, one.arm), [one.model, one.arm, f"{one.before:.3f}"])
                row += [words.change(one.effect), one.mark or "-"]
        for (model, arm), row in rows.items():
            outcomes = [run.outcome for run in comparison.runs if (run.model, run.arm) == (model, arm)]
            row += [str(len(outcomes)), str(outcomes.count("collapsed")), str(outcomes.count("failed"))]
        title = f"{comparison.metric} averaged over tiers, minus that before training, and how runs ended"
        return Grid(title, [*header, "runs", "collapsed", "failed"], list(rows.values()), labels=2)

    def _scores(self, at: str, model: str) -> Grid:
        comparison = self.comparison
        cells = {
            (score.arm, score.tier, score.metric): words.share(score.seeds)
            for score in (*comparison.before, *comparison.scores)
            if (score.at, score.model) == (at, model)
        }
        names = list(dict.fromkeys(name for name, _, _ in cells))
        tiers, rows = [*comparison.tiers, AVERAGE], []
        for metric in comparison.metrics:
            for name in names:
                label = self._label(model, name, metric) if name in comparison.arms else name
                rows.append([metric if name == names[0] else "", label, *(cells[name, tier, metric] for tier in tiers)])
        return Grid(self._model_title(at, model), ["metric", "arm", *tiers], rows, labels=2)

    def _model_title(self, at: str, model: str) -> str:
        comparison = self.comparison
        sizes = [str(size) for size in comparison.sizes.values()]
        problems = f"{sizes[0]} problems per tier" if len(set(sizes)) == 1 else f"{' + '.join(sizes)} problems"
        pairs = len({(run.base_seed, run.seed) for run in comparison.runs if run.model == model})
        stands = f" (stands where the paper has {STANDS_FOR[model]})" if self.paper and model in STANDS_FOR else ""
        where = f"after {comparison.where[at, model]:,.0f} {UNITS[at]}"
        return f"{model}{stands} {where}: {pairs} seeds x {problems} x {comparison.spec.eval.samples} samples"

    def _label(self, model: str, arm: str, metric: str) -> str:
        """The arm, marked where it ends below its base policies, and by the state of its working trees."""
        trees = {run.tree for run in self.comparison.runs_of(model, arm)}
        gain = self.comparison.gain(self.comparison.axes[0], model, arm, metric)
        return f"{arm} {gain.mark}".rstrip() + "".join(mark for tree, mark in MARKS.items() if tree in trees)

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
        header = ["model", "arm", "base", "seed", "run", "ended", "tree"]
        rows = [
            [run.model, run.arm, str(run.base_seed), str(run.seed), run.run_id, run.outcome, run.tree + MARKS[run.tree]]
            for run in self.comparison.runs
        ]
        return Grid("Runs and the state of their working trees", header, rows, labels=len(header))


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
    return Grid(comparison_rows.published_label(paper, table), header, rows, labels=2)


def _difference_row(one: Difference) -> Sequence[str]:
    effect = one.effect
    interval = "-" if math.isnan(effect.half_width) else f"[{effect.low:+.3f}, {effect.high:+.3f}]"
    numbers = [f"{effect.mean:+.3f}", interval, words.p_value(effect.p), words.p_value(one.p_holm)]
    return [one.arm, one.tier, one.metric, *numbers, f"{one.above}/{effect.n}"]


def _words(at: str) -> str:
    return at.replace("_", " ")


ARTIFACTS = tuple(comparison(suite) for suite in PLACES)
