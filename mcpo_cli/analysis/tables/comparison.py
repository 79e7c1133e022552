"""The comparison of a suite's arms as a table."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import pandas as pd

from mcpo_cli.analysis import render
from mcpo_cli.analysis.comparison import Choice, Comparison, Row, compare, records
from mcpo_cli.analysis.equal_cost import AVERAGE, BEFORE, UNITS
from mcpo_cli.analysis.figures import comparison as figures
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product, Section
from mcpo_cli.analysis.render import Columns, Grid
from mcpo_cli.analysis.tables import comparison_notes
from mcpo_cli.config import plan, presets
from mcpo_cli.config.plan import Plan
from mcpo_cli.statistics import power
from mcpo_cli.statistics.variance import ADVICE

PAPERS = {"pass@1": "pass@1", "best@8": "pass@8"}
"""Our name of a metric -> the paper's."""
MARKS = {"clean": "", "dirty": " *", "unknown": " ?"}
COLUMNS = (
    "block", "model", "arm", "tier", "metric", "mean", "at", "cost", "baseline", "low", "high", "sd", "p", "p_holm",
    "family", "seeds_above", "seeds", "collapsed", "failed", "problems", "samples", "run_ids", "trees",
)  # fmt: skip
"""Columns of the CSV file: one number per row with its uncertainty and provenance. `block`: measured, before training,
gain (arm minus before training), difference (arm minus baseline), mean, iqm, better or mean difference over tiers and
models, sd base and the like (components of the headline's difference), curve, or the label of the published numbers."""
BY_DEFAULT = Choice()


def comparison(
    suite: str, choice: Choice = BY_DEFAULT, name: str = "", paper: Mapping[str, Any] | None = None, place: str = ""
) -> Artifact:
    """The artifact that compares the arms of a suite, named like it or `name`.

    paper: published numbers of its table `place`, to show beside those that were measured.

    Raises:
        ConfigError: there is no such suite.
    """
    about, stem = plan.read(suite), presets.stem(suite)
    chosen = replace(choice, baseline=choice.baseline or about.baseline, metric=choice.metric or about.metric)
    section: Section = "paper" if paper else "beyond"
    title = about.title or stem

    def build(data: Mapping[str, Runs]) -> Product:
        return _product(name or stem, title, data[suite], chosen, about.smallest_effect, paper)

    return Artifact(name or stem, title, section, (suite,), build, place, failed_too=True, source=plan.file(suite))


def of_runs(runs: Plan, name: str, choice: Choice) -> Artifact:
    """The artifact `name` that compares the arms of runs that belong to no suite."""
    arms = list(dict.fromkeys(cell.arm for cell in runs.cells))
    title = " against ".join(reversed(arms)) if len(arms) == 2 else f"{len(arms)} arms"

    def build(data: Mapping[str, Runs]) -> Product:
        return _product(name, title, data[runs.suite], choice, plan.SMALLEST_EFFECT)

    return Artifact(name, title, "beyond", (runs.suite,), build, failed_too=True)


def _product(
    name: str, title: str, runs: Runs, choice: Choice, smallest: float, paper: Mapping[str, Any] | None = None
) -> Product:
    compared = compare(runs, choice)
    grids = list(_Grids(compared, paper, smallest).all())
    full = f"{name}: {title} (scale {compared.spec.scale}, regime {compared.spec.regime})"
    notes = comparison_notes.notes(compared, runs, paper)
    brief, figure = list(comparison_notes.brief(compared)), figures.figure(compared)
    return Product(full, _sentence(compared), frame(compared, paper), grids, notes, figure, brief)


def frame(compared: Comparison, paper: Mapping[str, Any] | None) -> pd.DataFrame:
    """All rows of the CSV file. paper: published numbers; None if there are none."""
    rows: list[Row] = []
    for row in records(compared.scores):
        rows.append({"block": "measured", **row, **_runs(compared, row, row["arm"])})
    rows += [{"block": BEFORE, **row, "cost": 0.0} for row in records(compared.before)]
    for row in records(compared.gains):
        about = {"block": "gain", "tier": AVERAGE, "baseline": BEFORE} | _ended(compared, row)
        rows.append({**row, **about, **_runs(compared, row, row["arm"])})
    for row in records(compared.differences):
        about = {"block": "difference", "baseline": compared.baseline, "seeds_above": row["above"]}
        rows.append({**row, **about, **_runs(compared, row, row["arm"], compared.baseline)})
    rows += [row for one in records(compared.aggregates) for row in _over_tiers(compared, one)]
    about = {"tier": AVERAGE, "metric": compared.metric}
    for (model, arm), found in compared.components.items():
        sds = {name: getattr(found, name) for name in ("base", "seed", "problem", "rest")}
        row = {"model": model, "arm": arm, **about, "at": "steps", "baseline": compared.baseline}
        rows += [{"block": f"sd {name}", "mean": sd, **row} for name, sd in sds.items() if not math.isnan(sd)]
    curves = compared.curves.groupby(["at", "model", "arm", "x"], sort=False)["value"].mean().reset_index()
    for row in records(curves):
        rows.append({"block": "curve", **row, **about, "cost": row["x"], "mean": row["value"]})
    if paper:
        label = _published_label(paper, compared.plan.suite)
        for model, arm, numbers in published_rows(paper, compared.plan.suite):
            for (benchmark, metric), value in numbers.items():
                row = {"block": label, "model": model, "arm": arm, "tier": benchmark, "metric": metric}
                rows.append({**row, "mean": value, "at": "steps"})
    return pd.DataFrame(rows, columns=COLUMNS)


def _over_tiers(compared: Comparison, one: Row) -> Iterator[Row]:
    row = {"model": ", ".join(compared.models), "tier": AVERAGE} | {key: one[key] for key in ("arm", "metric", "at")}
    for block in ("mean", "iqm", "better"):
        if not math.isnan(one[block]):
            yield {"block": block, **row, "mean": one[block], "low": one[f"{block}_low"], "high": one[f"{block}_high"]}
    if not math.isnan(one["difference_mean"]):
        effect = {key: one[f"difference_{key}"] for key in ("mean", "low", "high", "sd", "p", "seeds")}
        yield {"block": "mean difference", **row, **effect, "baseline": compared.baseline}


def _runs(compared: Comparison, row: Row, *arms: str) -> Row:
    """Columns of a measured row: its cost, size and runs."""
    runs = compared.scored(row["model"], *arms)
    return {
        "cost": compared.where[row["at"], row["model"]],
        "problems": compared.sizes.get(row.get("tier", AVERAGE), sum(compared.sizes.values())),
        "samples": compared.spec.eval.samples,
        "run_ids": " ".join(runs["run_id"]),
        "trees": " ".join(runs["tree"]),
    }


def _ended(compared: Comparison, row: Row) -> Row:
    """Number of runs of the row's arm, and of those that collapsed or failed."""
    outcomes = [run["outcome"] for run in records(compared.runs, model=row["model"], arm=row["arm"])]
    return {"runs": len(outcomes)} | {name: outcomes.count(name) for name in ("collapsed", "failed")}


def _sentence(compared: Comparison) -> str:
    """The differences, the arms that end below the policies before training, and the runs that failed or collapsed."""
    outcomes = list(compared.runs["outcome"])
    counts = [f"{outcomes.count(name)} {name}" for name in ("failed", "collapsed") if name in outcomes]
    ended = [f"Of {len(outcomes)} runs {' and '.join(counts)}."] if counts else []
    same = [f"{equal}, so there is nothing to compare between them." for equal in compared.plan.equal_arms]
    return " ".join([_found(compared), *against_before(compared), *ended, *same])


def _found(compared: Comparison) -> str:
    if compared.headline.empty:
        scores = records(compared.scores, metric=compared.metric, at=compared.axes[0])
        means = [f"{_share(one)} on {one['tier']} ({one['model']})" for one in scores if one["tier"] != AVERAGE]
        return f"{compared.metric} of {compared.baseline}, 95% interval over seeds: {'; '.join(means)}."
    parts = [
        f"at equal {_equal(compared, at)}: "
        + ", ".join(_in_words(compared, one) for one in records(compared.headline, at=at))
        for at in compared.shown_axes
    ]
    head = f"Average {compared.metric} minus that of {compared.baseline}, with 95% t-interval over seeds"
    return f"{head}, {'; '.join(parts)}."


def _in_words(compared: Comparison, one: Row) -> str:
    said = "" if one["verdict"] == "undecided" else f"; {compared.in_words(one)}"
    return f"{one['arm']} {_change(one)} ({one['model']}{said})"


def against_before(compared: Comparison) -> Iterator[str]:
    """A sentence for each model: the headline's metric before training, and the arms that end below that."""
    for model in compared.models:
        start = records(compared.before, model=model, tier=AVERAGE, metric=compared.metric)
        gains = records(compared.gains, at=compared.axes[0], model=model, metric=compared.metric)
        below = [f"{one['arm']} ({_change(one)})" for one in gains if one["mark"]]
        began = f"Before training {compared.metric} is {start[0]['mean']:.3f}"
        began = began if len(start) == 1 else "Arms start from several policies"
        ends = "end" if len(below) > 1 else "ends"
        yield f"{began} ({model}); {', '.join(below) or 'no arm'} {ends} below that."


@dataclass(frozen=True)
class _Grids:
    """The tables of a comparison."""

    compared: Comparison
    paper: Mapping[str, Any] | None
    """Published numbers; None if there are none."""
    smallest: float
    """The smallest difference that matters."""

    def all(self) -> Iterator[Grid]:
        compared, at = self.compared, self.compared.axes[0]
        yield self._headline()
        for model in compared.models:
            yield self._scores(at, model)
        yield self._gains()
        for model in compared.models:
            if rows := records(compared.differences, model=model, family="others"):
                title = f"{model} at equal {_spaced(at)}: minus {compared.baseline}, paired by seed"
                yield Grid.of(title, rows, DIFFERENCES, labels=3, is_detail=True)
        yield self._aggregates()
        if compared.components:
            yield self._components()
        title = "Runs and the state of their working trees"
        yield Grid.of(title, records(compared.runs), RUNS, labels=len(RUNS), is_detail=True)
        if self.paper:
            yield _published_grid(self.paper, compared.plan.suite)

    def _headline(self) -> Grid:
        """The score of each arm and its difference from the baseline; an axis that repeats another one is left out."""
        compared, axes = self.compared, self.compared.shown_axes
        rows = [one for at in axes for one in records(compared.scores, at=at, tier=AVERAGE, metric=compared.metric)]
        found = {(one["at"], one["model"], one["arm"]): one for one in records(compared.headline)}
        gains = {(one["at"], one["model"], one["arm"]): one for one in records(compared.gains, metric=compared.metric)}

        def key(row: Row) -> tuple[str, str, str]:
            return row["at"], row["model"], row["arm"]

        def of(name: Callable[[Row], str]) -> Callable[[Row], str]:
            return lambda row: name(found[key(row)]) if key(row) in found else ""

        columns: dict[str, str | Callable[[Row], str]] = {
            "equal": lambda row: _equal(compared, row["at"]),
            "model": "model",
            "arm": "arm",
            "before": lambda row: f"{gains[key(row)]['before']:.3f}",
            compared.metric: lambda row: f"{row['mean']:.3f} {gains[key(row)]['mark']}".rstrip(),
            f"minus {compared.baseline}": of(_change),
            "p Holm": of(lambda one: render.p_value(one["p_holm"])),
            "pairs": of(lambda one: str(one["seeds"])),
            "verdict": of(lambda one: one["verdict"]),
        }
        if len(axes) == 1:
            del columns["equal"]
        if len(compared.models) == 1:
            del columns["model"]
        title = f"{compared.metric}, mean over tiers"
        if found:
            title += f", and its difference from {compared.baseline}, paired by seed"
        else:
            columns = dict(list(columns.items())[: list(columns).index(compared.metric) + 1])
        if len(axes) == 1:
            title += f" (at equal {_equal(compared, axes[0])})"
        return Grid.of(title, rows, columns, labels=len({"equal", "model", "arm"} & columns.keys()))

    def _gains(self) -> Grid:
        """One row per model and arm: its distance from the policies before training, and the outcomes of its runs."""
        compared, columns = self.compared, ["model", "arm", "before"]
        rows: dict[tuple[str, str], list[str]] = {}
        for at in compared.axes:
            columns += [f"{_spaced(at)}: end minus before", f"{_spaced(at)}: below"]
            for one in records(compared.gains, at=at, metric=compared.metric):
                head = [one["model"], one["arm"], f"{one['before']:.3f}"]
                rows.setdefault((one["model"], one["arm"]), head).extend([_change(one), one["mark"] or "-"])
        for (model, arm), row in rows.items():
            row.extend(map(str, _ended(compared, {"model": model, "arm": arm}).values()))
        title = f"{compared.metric} averaged over tiers, minus that before training, and how runs ended"
        return Grid(title, [*columns, "runs", "collapsed", "failed"], list(rows.values()), labels=2, is_detail=True)

    def _scores(self, at: str, model: str) -> Grid:
        compared = self.compared
        found = [one for part in (compared.before, compared.scores) for one in records(part, at=at, model=model)]
        cells = {(one["arm"], one["tier"], one["metric"]): _share(one) for one in found}
        names = list(dict.fromkeys(name for name, _, _ in cells))
        tiers, rows = [*compared.sizes, AVERAGE], []
        for metric in compared.metrics:
            for name in names:
                label = self._label(model, name, metric) if name in compared.arms else name
                rows.append([metric if name == names[0] else "", label, *(cells[name, tier, metric] for tier in tiers)])
        return Grid(self._model_title(at, model), ["metric", "arm", *tiers], rows, labels=2)

    def _model_title(self, at: str, model: str) -> str:
        compared = self.compared
        sizes = [str(size) for size in compared.sizes.values()]
        problems = f"{sizes[0]} problems per tier" if len(set(sizes)) == 1 else f"{' + '.join(sizes)} problems"
        pairs = len({(run["base_seed"], run["seed"]) for run in records(compared.runs, model=model)})
        theirs = self.paper["stands_for"].get(model) if self.paper else None
        stands = f" (in place of the paper's {theirs})" if theirs else ""
        where = f"after {compared.where[at, model]:,.0f} {UNITS[at]}"
        return f"{model}{stands} {where}: {pairs} seeds x {problems} x {compared.spec.eval.samples} samples"

    def _label(self, model: str, arm: str, metric: str) -> str:
        """The arm, marked where it ends below its base policies, and by the state of its working trees."""
        trees = set(self.compared.scored(model, arm)["tree"])
        gain = self.compared.gain(self.compared.axes[0], model, arm, metric)
        return f"{arm} {gain['mark']}".rstrip() + "".join(mark for tree, mark in MARKS.items() if tree in trees)

    def _aggregates(self) -> Grid:
        columns: Columns = {
            "equal": lambda one: _spaced(one["at"]),
            "metric": "metric",
            "arm": "arm",
            "IQM": lambda one: _share(one, "iqm"),
            "P(better)": lambda one: _share(one, "better"),
            "difference": lambda one: "-" if math.isnan(one["difference_mean"]) else _change(one, "difference_"),
            "detectable": lambda one: self._reach(one)[0],
            f"seeds for {'published' if self.paper else f'{self.smallest:g}'}": lambda one: self._reach(one)[1],
        }
        title = f"Over tiers and models, against {self.compared.baseline}"
        return Grid.of(title, records(self.compared.aggregates), columns, labels=3, is_detail=True)

    def _reach(self, one: Row) -> tuple[str, str]:
        """The difference that these seeds detect, and the number of seeds that the target needs."""
        sd, seeds, paper = one["difference_sd"], one["difference_seeds"], self.paper
        if math.isnan(one["difference_half_width"]):
            return "-", "-"
        target: float | None = self.smallest
        if paper:
            target = _published_difference(paper, self.compared, one["arm"], PAPERS.get(one["metric"], ""))
        needed = "-".join(map(power.seeds_text, power.seeds_range(target, sd, int(seeds)))) if target else "-"
        return f"{power.detectable_effect(sd, int(seeds)):.3f}", needed

    def _components(self) -> Grid:
        rows = []
        for (model, arm), found in self.compared.components.items():
            total = sum(found.parts.values())
            share = f"{found.parts[found.largest] / total:.0%} {found.largest}" if total else "-"
            sds = [render.number(value) for value in (found.base, found.seed, found.problem, found.rest)]
            rows.append([model, arm, *sds, share, ADVICE[found.largest] if total else "-"])
        header = ["model", "arm", "sd base", "sd seed", "sd problem", "sd rest", "largest share", "buy more"]
        title = f"Where the variance of {self.compared.metric} minus that of {self.compared.baseline} comes from"
        return Grid(title, header, rows, labels=2, is_detail=True)


def published_rows(paper: Mapping[str, Any], table: str) -> Iterator[tuple[str, str, dict[tuple[str, str], float]]]:
    """Each published row of `table` in printed order: model, arm, and its numbers by (benchmark, metric)."""
    benchmarks = paper["settings"]["evaluation"]["benchmarks"]
    for row in paper["tables"][table]["rows"]:
        numbers = {(name, metric): value for name in benchmarks for metric, value in row[name].items()}
        yield row["model"], row["arm"], numbers


def _published_difference(paper: Mapping[str, Any], compared: Comparison, arm: str, metric: str) -> float | None:
    """The paper's difference, averaged over models and benchmarks; None if it has none."""
    rows = {(model, name): numbers for model, name, numbers in published_rows(paper, compared.plan.suite)}
    pairs = [
        (numbers, rows[model, compared.baseline])
        for (model, name), numbers in rows.items()
        if name == arm and (model, compared.baseline) in rows
    ]
    found = [mine[key] - other[key] for mine, other in pairs for key in mine if key[1] == metric]
    return fmean(found) if found else None


def _published_grid(paper: Mapping[str, Any], table: str) -> Grid:
    printed = list(published_rows(paper, table))
    columns = list(printed[0][2])
    rows = [[model, arm, *(f"{numbers[column]:.4f}" for column in columns)] for model, arm, numbers in printed]
    header = ["model", "arm", *(f"{name} {metric}" for name, metric in columns)]
    return Grid(_published_label(paper, table), header, rows, labels=2, is_detail=True)


def _published_label(paper: Mapping[str, Any], table: str) -> str:
    where = paper["tables"][table]["where"].split(",")[0]
    return f"published (arXiv {paper['source']['arxiv']}, {where}), not measured here"


def _spaced(at: str) -> str:
    return at.replace("_", " ")


def _equal(compared: Comparison, at: str) -> str:
    """An axis in words, with later axes that give the same comparison: `steps and rollouts`."""
    axes, shown = compared.axes, compared.shown_axes
    same = axes[axes.index(at) :] if at == shown[-1] else axes[axes.index(at) : axes.index(shown[shown.index(at) + 1])]
    return " and ".join(map(_spaced, same))


def _change(row: Row, prefix: str = "") -> str:
    return render.change(row[f"{prefix}mean"], row[f"{prefix}half_width"])


def _share(row: Row, name: str = "") -> str:
    value, bounds = (row[name], f"{name}_") if name else (row["mean"], "")
    return render.share(value, row[f"{bounds}low"], row[f"{bounds}high"])


DIFFERENCES: Columns = {
    "arm": "arm",
    "tier": "tier",
    "metric": "metric",
    "difference": lambda one: f"{one['mean']:+.3f}",
    "95% t": lambda one: "-" if math.isnan(one["half_width"]) else f"[{one['low']:+.3f}, {one['high']:+.3f}]",
    "p": lambda one: render.p_value(one["p"]),
    "p Holm": lambda one: render.p_value(one["p_holm"]),
    "seeds >0": lambda one: f"{one['above']}/{one['seeds']}",
}
RUNS: Columns = {
    "model": "model",
    "arm": "arm",
    "base": "base_seed",
    "seed": "seed",
    "run": "run_id",
    "ended": "outcome",
    "tree": lambda run: run["tree"] + MARKS[run["tree"]],
}
