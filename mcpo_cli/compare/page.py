"""A comparison as text: the verdict, its table, what to know of it, and the tables of its details."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, get_args

import pandas as pd

from mcpo_cli.compare import history_page, training_page
from mcpo_cli.compare.comparison import Comparison, records
from mcpo_cli.compare.equal_cost import AVERAGE, shown
from mcpo_cli.compare.flips import largest_flips
from mcpo_cli.compare.legend import legend
from mcpo_cli.render.markup import Columns, Grid, Page, share, short_p, signed
from mcpo_cli.render.product import Row
from mcpo_cli.statistics.words import DECIDED, Word

MOST_BENCHMARKS = 12
"""Most benchmarks or categories in the first table; the others are among the details."""
LONGEST_ANSWER = 20
"""Most characters of an answer in that table."""
MOST_NAMED = 8
"""Most names that a sentence lists."""
OF_MODELS = ("", " (these two models)", " (these models)")
"""The text after a decided word: nothing, or that the word holds for the models of one or two seeds, not for other
models by the same recipe."""
SAID = tuple(word + scope for word in get_args(Word) for scope in OF_MODELS)
BOUGHT = ("problems", "seeds", "samples")
HEADINGS = {
    "arm", "arm's", "benchmark", "change", "detects", "equal", "interval", "metric", "model", "outcome", "p",
    "problem", "rule", "verdict",
}  # fmt: skip
"""Headings of the tables that also have a column for each arm."""


def title(comparison: Comparison) -> str:
    """`new against base`."""
    arms = listed([name for name in comparison.names if name != comparison.baseline])
    return f"{arms} against {comparison.baseline}" if arms else comparison.baseline


def page(comparison: Comparison, name: str = "") -> Page:
    """The whole comparison, for Markdown and LaTeX. name: the suite's name, for the title."""
    notes = [*comparison.warnings, *remarks(comparison), *details(comparison)]
    grids = [grid for grid in (main_grid(comparison), *detail_grids(comparison)) if grid.rows]
    return Page(name or title(comparison), " ".join(sentences(comparison)), grids, notes)


def sentences(comparison: Comparison) -> list[str]:
    """The verdict on each arm; for runs also what it is measured against, and how many runs ended badly."""
    if comparison.of_history:
        return history_page.sentences(comparison, main_rows(comparison))
    rows = _distinct(main_rows(comparison))
    arms = dict.fromkeys(row["arm"] for row in rows)
    lines = [_sentence(arm, [row for row in rows if row["arm"] == arm], comparison) for arm in arms]
    return [*lines, *(training_page.sentences(comparison) if comparison.training else ())]


def main_rows(comparison: Comparison) -> list[Row]:
    """The verdict's differences: for runs the headline's; for logs all of whole benchmarks in the headline's metric."""
    if comparison.training:
        return [row for at in comparison.shown_axes for row in records(comparison.headline, at=at)]
    return _mean_first(records(comparison.differences, metric=comparison.metric, part_of=""))


def _mean_first(rows: Sequence[Row]) -> list[Row]:
    """The rows by arm; each arm's mean over benchmarks comes first, because the other rows are its details."""
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    return sorted(rows, key=lambda row: (arms.index(row["arm"]), row["benchmark"] != AVERAGE))


def shown_rows(comparison: Comparison) -> list[Row]:
    """The differences of the first table and of the picture: for many benchmarks only the mean and decided ones."""
    rows = main_rows(comparison) if comparison.training else _mean_first(records(comparison.differences, part_of=""))
    if comparison.training or comparison.differences["benchmark"].nunique() <= MOST_BENCHMARKS:
        return rows + records(comparison.differences, family="categories")[:MOST_BENCHMARKS]
    selection = [row for row in rows if row["benchmark"] == AVERAGE or row["verdict"] in DECIDED]
    return selection[:MOST_BENCHMARKS] or rows[:MOST_BENCHMARKS]


def _distinct(rows: Sequence[Row]) -> list[Row]:
    """The differences without repetitions of a difference at a later cost."""
    return list({(row["family"], row["test"]): row for row in reversed(rows)}.values())[::-1]


def _sentence(arm: str, rows: Sequence[Row], comparison: Comparison) -> str:
    parts: dict[str, list[str]] = {_phrase(row, comparison): [] for row in rows[:1]} | {word: [] for word in SAID}
    for row in rows:
        benchmark = "their mean" if row["benchmark"] == AVERAGE else str(row["benchmark"])
        places = [benchmark] if not comparison.training else []
        places += [row["model"]] if row["model"] else []
        places += [f"equal {equal(comparison, row['at'])}"] if row["at"] else []
        parts.setdefault(_phrase(row, comparison), []).append(f"{', '.join(places)} ({signed(row['difference'])})")
    verdicts = "; ".join(f"{word} on {listed(names)}" for word, names in parts.items() if names)
    metric = f" in {comparison.metric}" if comparison.training else ""
    metric += " (lower is better)" if comparison.lower else ""
    if all(row["verdict"] == "not testable" for row in rows):
        verdicts += f": {rows[0]['why']}"
    return f"{arm} against {comparison.baseline}{metric}: {verdicts}."


def _phrase(row: Row, comparison: Comparison) -> str:
    """The word of a verdict, and its scope.

    A word that rests on one or two seeds says that it is not about the recipe; `undecided` says why, where the
    interval, which is not adjusted, leaves 0 out.
    """
    word = str(row["verdict"])
    if word == "undecided" and (row["low"] > 0 or row["high"] < 0):
        tests = comparison.differences[comparison.differences["family"] == row["family"]]["test"].nunique()
        return f"undecided after correction for {tests} tests" if tests > 1 else word
    if row["over"] != "problems" or word not in DECIDED:
        return word
    return word + OF_MODELS[min(row["seeds"], 2)]


def equal(comparison: Comparison, at: str) -> str:
    """An axis in words, with later axes that give the same comparison: `steps and rollouts`."""
    axes, heads = comparison.axes, comparison.shown_axes
    group = axes[axes.index(at) :] if at == heads[-1] else axes[axes.index(at) : axes.index(heads[heads.index(at) + 1])]
    return " and ".join(axis.replace("_", " ") for axis in group)


def main_grid(comparison: Comparison) -> Grid:
    """The differences that the verdict is about; the scores, if there is one arm."""
    if comparison.differences.empty:
        return scores_grid(comparison, comparison.models[0])
    rows = shown_rows(comparison)
    if comparison.of_history:
        return history_page.grid(comparison, rows)
    metric = f" in {comparison.metric}, mean over tiers" if comparison.training else ""
    return _differences(comparison, f"Change from {comparison.baseline}{metric}", rows, is_detail=False)


def _differences(comparison: Comparison, title: str, rows: Sequence[Any], *, is_detail: bool) -> Grid:
    """Means, difference, interval, p, verdict and detectable difference; one line per difference.

    A name that is the same on all lines has no column, except for the benchmark's name.
    """
    names = {name for name in ("at", "model", "arm", "metric") if len({row[name] for row in rows}) > 1}
    labels: dict[str, Any] = {}
    if "at" in names:
        labels["equal"] = lambda row: equal(comparison, row["at"])
    if "model" in names:
        labels["model"] = "model"
    if not comparison.training or is_detail:
        labels["benchmark"] = lambda row: shown(row["benchmark"])
    if "arm" in names or not labels:
        labels["arm"] = "arm"
    if "metric" in names or not (comparison.training or comparison.metric == "pass@1"):
        labels["metric"] = "metric"
    columns: Columns = {
        **labels,
        heading(comparison.baseline): lambda row: share(row["baseline_mean"]),
        "arm's" if "arm" in labels or not rows else heading(rows[0]["arm"]): lambda row: share(row["mean"]),
        "change": lambda row: signed(row["difference"]),
        "interval": interval,
        "p": lambda row: short_p(deciding(row)),
        "verdict": "verdict",
        "detects": lambda row: ">1" if row["share"] and row["detectable"] > 1 else share(row["detectable"]),
    }
    return Grid.of(title, rows, columns, len(labels), is_detail=is_detail)


def heading(arm: str) -> str:
    """The name of an arm over the column of its means; in quotes if other columns of these tables have that name."""
    return f"'{arm}'" if arm in HEADINGS else arm


def deciding(row: Row) -> float:
    """The adjusted p-value of the test that gives the verdict."""
    names = {"equivalent": "p_equivalent_adjusted", "not worse": "p_not_worse_adjusted"}
    return float(row[names.get(row["verdict"], "p_adjusted")])


def interval(row: Row) -> str:
    return "-" if math.isnan(row["low"]) else f"[{signed(row['low'])}, {signed(row['high'])}]"


def remarks(comparison: Comparison, *, most: int | None = None) -> list[str]:
    """What to know of the first table: its design, what would settle it, the meaning of its columns.

    most: the number of lines on data that would settle a difference; None for all.
    """
    if comparison.of_history:
        return history_page.remarks(comparison, main_rows(comparison))
    training, settled = list(training_page.remarks(comparison)) if comparison.training else [], settle(comparison)
    if most is not None and len(settled) > most:
        settled = [*settled[:most], f"and {len(settled) - most} more lines of this kind: --full"]
    changed = "" if comparison.training else "; ".join(counts(comparison))
    changes = [f"problems that changed: {changed}"] if changed else []
    return [*training, *settled, *changes, *pairing(comparison), *legend(comparison)]


def counts(comparison: Comparison) -> list[str]:
    """How many problems gained, lost, or kept their score with another answer: `sums: 63 gained, 31 lost`."""
    rows = main_rows(comparison)
    rows = rows[:1] if comparison.training else [row for row in rows if row["benchmark"] != AVERAGE]
    several = comparison.differences["arm"].nunique() > 1
    lines = []
    for row in [row for row in rows if row["problems"] > 1][:MOST_NAMED]:
        label = f"{row['benchmark']}, {row['arm']}" if several else row["benchmark"]
        lines.append(f"{label}: {row['gained']:,} gained, {row['lost']:,} lost")
        if row.get("other_answers", 0) > 0:
            lines[-1] += f", {row['other_answers']:,.0f} with the same score and another answer"
    return lines


def details(comparison: Comparison) -> list[str]:
    """What to know of the tables of details."""
    notes = [] if not _aggregates(comparison).rows else [
        "IQM: mean of the middle half of all scores; its interval covers 90 % with 3 seeds and 92 % with 5. P(better): "
        "probability that a run of the arm beats one of the baseline, a tie counts half (Agarwal et al. 2021)."
    ]  # fmt: skip
    return [*notes, *(training_page.details(comparison) if comparison.training else ())]


def pairing(comparison: Comparison) -> list[str]:
    """The pairing of samples and the scope of intervals, in one sentence per design."""
    is_whole = (comparison.differences["benchmark"] != AVERAGE) & (comparison.differences["part_of"] == "")
    rows = comparison.differences[is_whole].drop_duplicates(["model", "benchmark", "arm"])
    designs: dict[str, dict[str, dict[str, None]]] = {}
    for row in rows.to_dict("records"):
        bought = BOUGHT if row["problems"] > 1 else ("seeds",)
        size = " x ".join(_count(row[unit], unit.removesuffix("s")) for unit in bought)
        designs.setdefault(_paired(row), {}).setdefault(size, {})[str(row["benchmark"])] = None
    return [
        f"{'; '.join(f'{listed(list(names), few=True)}: {size}' for size, names in sizes.items())}; {design}"
        for design, sizes in designs.items()
    ]


def _paired(row: Mapping[Any, Any]) -> str:
    many = row["seeds"] > 1
    if row["problems"] == 1:
        design = "paired by training seed" if row["paired_by_seed"] else "runs are not paired: their seeds differ"
        return f"one value of each run; {design}; intervals are about other seeds"
    by = "by problem and by training seed" if row["paired_by_seed"] and many else "by problem"
    if row["over"] == "seeds":
        return f"paired {by}; intervals are about other seeds of these arms, for these problems and base policies"
    is_clustered = row["clusters"] < row["problems"]
    scope = f"other clusters of problems ({row['clusters']} here)" if is_clustered else "other problems"
    if row["over"] == "both":
        return f"paired {by}; intervals are about {scope} and other seeds"
    subject = f"{row['seeds']} seeds say" if many else "one seed says"
    return f"paired {by}; intervals are about {scope}, for these models: {subject} nothing about others"


def listed(names: Sequence[str], *, few: bool = False) -> str:
    """All of them, or the first MOST_NAMED and how many more; with `few`, then only their number."""
    if len(names) <= MOST_NAMED:
        return ", ".join(names)
    count = len(names) - MOST_NAMED
    return f"{len(names)} benchmarks" if few else f"{', '.join(names[:MOST_NAMED])} and {count} more"


def _count(number: float, unit: str) -> str:
    digits = 10 if number == int(number) else 3
    return f"{number:,.{digits}g} {unit if number == 1 else f'{unit}s'.replace('ys', 'ies')}"


def settle(comparison: Comparison) -> list[str]:
    """Problems, seeds or samples that would settle undecided differences; reasons why other ones have no test."""
    return [line for row in _distinct(main_rows(comparison)) for line in _settled(row, comparison)]


def _settled(row: Row, comparison: Comparison) -> Iterator[str]:
    parts = ["the mean" if row["benchmark"] == AVERAGE else row["benchmark"], row["model"]]
    parts += [row["arm"]] if comparison.differences["arm"].nunique() > 1 else []
    parts += [f"equal {equal(comparison, row['at'])}"] if len(comparison.shown_axes) > 1 else []
    place = ", ".join(filter(None, parts))
    if row["verdict"] == "identical":
        yield f"{place} is identical: {row['why']}"
    if row["verdict"] == "not testable":
        yield f"{place} is not testable: {row['why']}"
    if row["verdict"] != "undecided" or math.isnan(row["detectable"]) or row["metric"] != "pass@1":
        return
    if row["effect"] < 5e-4:
        yield f"{place}: the difference seen is .000; --margin declares the smallest difference that matters"
        return
    needed = {unit: row.get(f"needed_{unit}", math.nan) for unit in BOUGHT}
    ways = [f"{number:,.0f} {unit} (now {row[unit]:.4g})" for unit, number in needed.items() if not pd.isna(number)]
    amount = " or ".join(ways) or "more than a million problems"
    yield f"{place}: to find a difference of {share(row['effect'])} takes {amount}, the rest as it is"


def detail_grids(comparison: Comparison) -> list[Grid]:
    """The tables of details: scores, all other differences, IQM, sources of variance, and the training of runs."""
    grids = [] if comparison.differences.empty else [scores_grid(comparison, model) for model in comparison.models]
    keys = [_key(row) for row in shown_rows(comparison)]
    rows = records(comparison.differences)
    if others := [row for row in rows if row["family"] != "headline" and _key(row) not in keys]:
        at = f", at equal {equal(comparison, comparison.axes[0])}" if comparison.training else ""
        title = f"All other changes from {comparison.baseline}{at}"
        grids.append(_differences(comparison, title, others, is_detail=True))
    grids += [_aggregates(comparison), sources_grid(comparison)]
    grids += [training_page.gains_grid(comparison), training_page.runs_grid(comparison)] if comparison.training else []
    return [grid for grid in grids if grid.rows]


def _key(row: Row) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in ("model", "arm", "benchmark", "metric", "family"))


def scores_grid(comparison: Comparison, model: str) -> Grid:
    """The mean of each arm on each benchmark with its interval, at the first cost."""
    rows = [row for row in records(comparison.arms, model=model) if row["at"] == comparison.axes[0]]
    before = records(comparison.training.before, model=model) if comparison.training else []
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in rows))
    cells = {(row["metric"], row["arm"], row["benchmark"]): row for row in (*before, *rows)}
    metrics, arms = (list(dict.fromkeys(row[name] for row in (*before, *rows))) for name in ("metric", "arm"))
    lines = [
        [metric, arm, *(_bounded(cells.get((metric, arm, benchmark))) for benchmark in benchmarks)]
        for metric, arm in product(metrics, arms)
        if any((metric, arm, benchmark) in cells for benchmark in benchmarks)
    ]
    place = training_page.where(comparison, model) if comparison.training else ""
    header = ["metric", "arm", *map(shown, benchmarks)]
    is_detail = not comparison.differences.empty
    return Grid(f"Scores{place}, with 95 % intervals", header, lines, labels=2, is_detail=is_detail)


def _bounded(row: Row | None, name: str = "mean", low: str = "low", high: str = "high") -> str:
    return "-" if row is None else share(row[name], row[low], row[high])


def _aggregates(comparison: Comparison) -> Grid:
    """IQM and P(better) of arms with enough seeds for an interval."""
    columns: Columns = {
        **({"equal": lambda row: row["at"].replace("_", " ")} if any(comparison.axes) else {}),
        "metric": "metric",
        "arm": "arm",
        "IQM": lambda row: _bounded(row, "iqm", "iqm_low", "iqm_high"),
        "P(better)": lambda row: _bounded(row, "better", "better_low", "better_high"),
        "change": lambda row: signed(row["difference_mean"]),
        "interval": lambda row: interval({"low": row["difference_low"], "high": row["difference_high"]}),
    }
    title = f"Over all benchmarks, against {comparison.baseline}; change and interval: over seeds"
    rows = [row for row in records(comparison.aggregates) if not math.isnan(row["iqm_low"])]
    return Grid.of(title, rows, columns, labels=len(columns) - 4, is_detail=True)


def sources_grid(comparison: Comparison) -> Grid:
    """Sources of the variance of each difference."""
    columns: Columns = {
        **({"model": "model"} if comparison.training else {}),
        "benchmark": lambda row: shown(row["benchmark"]),
        "arm": "arm",
        "source": "source",
        "sd": lambda row: share(row["sd"]),
        "share": lambda row: f"{row['share']:.0%}",
    }
    rows = comparison.sources.to_dict("records")
    return Grid.of("Sources of variance of each difference", rows, columns, len(columns) - 2, is_detail=True)


def flips_grid(comparison: Comparison, most: int | None = None) -> Grid:
    """The problems whose score changed, largest change first: all, or the first `most`; with the answers of logs."""
    baseline = heading(comparison.baseline)
    answers: Columns = {f"{baseline} answers": _answer("baseline_answer"), "arm answers": _answer("answer")}
    columns: Columns = {
        "benchmark": "benchmark",
        "arm": "arm",
        "problem": "problem",
        **(answers if {"answer", "baseline_answer"} <= set(comparison.flips) else {}),
        baseline: lambda row: share(row["baseline_score"]),
        "arm's": lambda row: share(row["score"]),
        "change": lambda row: signed(row["score"] - row["baseline_score"]),
    }
    rows = largest_flips(comparison.flips)[:most].to_dict("records")
    title = "All problems that changed" if len(rows) == len(comparison.flips) else "Problems that changed most"
    title = f"{title} ({'; '.join(counts(comparison))})"
    return Grid.of(title, rows, columns, len(columns) - 3, is_detail=True)


def _answer(column: str) -> Callable[[Row], str]:
    return lambda row: "-" if pd.isna(row[column]) else str(row[column])[:LONGEST_ANSWER]
