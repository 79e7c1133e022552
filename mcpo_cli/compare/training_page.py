"""The training of compared runs in words: costs, scores before training, and runs that failed or collapsed."""

import math
from collections.abc import Iterator
from typing import Any

from mcpo_cli.compare.comparison import Comparison, records
from mcpo_cli.compare.equal_cost import AVERAGE, COLLAPSED, UNITS
from mcpo_cli.compare.training import Training
from mcpo_cli.measures.frames import PAIR
from mcpo_cli.measures.scores import K
from mcpo_cli.render.markup import Columns, Grid, share, signed
from mcpo_cli.render.product import Row
from mcpo_cli.statistics import clusters
from mcpo_cli.statistics.stats import LEAST


def sentences(comparison: Comparison) -> Iterator[str]:
    """The score before training, the arms that end below it, runs that ended badly, and arms that are the same."""
    training = comparison.trained
    for model in comparison.models:
        start = records(training.before, model=model, benchmark=AVERAGE, metric=comparison.metric)
        gains = records(training.gains, at=comparison.axes[0], model=model, metric=comparison.metric)
        below = [f"{row['arm']} ({_change(row)})" for row in gains if row["mark"]]
        began = f"Before training {comparison.metric} is {share(start[0]['mean'])}"
        began = began if len(start) == 1 else "Arms start from several policies"
        ends = "end" if len(below) > 1 else "ends"
        yield f"{began} ({model}); {', '.join(below) or 'no arm'} {ends} below that."
    outcomes = list(training.runs["outcome"])
    if counts := [f"{outcomes.count(name)} {name}" for name in ("failed", "collapsed") if name in outcomes]:
        yield f"Of {len(outcomes)} runs {' and '.join(counts)}."
    yield from (f"{sentence}, so there is nothing to compare between them." for sentence in training.plan.equal_arms)


def _change(row: Row) -> str:
    """`-.030 ± .075`, or the change alone if it has no interval."""
    half_width = row["half_width"]
    return signed(row["mean"]) + ("" if math.isnan(half_width) else f" ± {share(half_width)}")


def where(comparison: Comparison, model: str) -> str:
    """` of toy-s after 20 global steps`."""
    at = comparison.axes[0]
    return f" of {model} after {comparison.trained.where[at, model]:,.0f} {UNITS[at]}"


def remarks(comparison: Comparison) -> Iterator[str]:
    """Unusual facts about the runs, and the costs at which they are compared."""
    training = comparison.trained
    failed, collapsed = (records(training.runs, outcome=name) for name in ("failed", "collapsed"))
    if failed:
        listing = "; ".join("{arm}, {model}, seed {seed} ({run_id}): {error}".format(**run) for run in failed)
        yield (
            f"Failed runs are outcomes of their arms and have no score: {listing}. A difference is over the pairs of "
            "which both runs have a score, which favours an arm that fails where it does badly. A run whose error has "
            f"nothing to do with its method can be continued: {training.plan.command}"
        )
    if collapsed:
        listing = ", ".join("{arm}, {model}, seed {seed}".format(**run) for run in collapsed)
        yield f"Collapsed runs (pass@1 ends below {COLLAPSED:.0%} of their base policy's) count like others: {listing}."
    if failed or collapsed:
        yield (
            "Where runs of an arm collapse or fail, intervals over few seeds cover too little: if each run collapses "
            "from .4 to .1 with probability .2, the 95 % interval of the arm's mean covers 48 to 73 % with 3 seeds, "
            "73 % with 6 and 92 % with 12."
        )
    if training.k < K:
        yield f"k = {training.k} in place of {K}: some problem has only {training.k} graded samples."
    if training.ungraded:
        yield f"{training.ungraded} samples could not be graded and are excluded."
    for state, text in (("dirty", "uncommitted changes"), ("unknown", "changes that nothing recorded")):
        if runs := len(records(training.runs, tree=state)):
            yield f"{runs} of {len(training.runs)} runs were trained from a working tree with {text}."
    costs = [f"{cost:,.0f} {UNITS[at]} ({model})" for (at, model), cost in training.where.items()]
    yield (
        f"Compared at the largest cost that all runs of a model reach: {'; '.join(costs)}. Between two evaluations a "
        "score is interpolated; nothing is extrapolated."
    )
    yield from _of_base_policies(comparison)


def _of_base_policies(comparison: Comparison) -> Iterator[str]:
    """The interval of each difference for new base policies, where runs share a base policy."""
    rows = comparison.trained.final.groupby(["model", "arm", *PAIR])["value"].mean()
    for row in records(comparison.headline, at=comparison.axes[0]):
        arm, baseline = (rows.xs((row["model"], name)) for name in (row["arm"], comparison.baseline))
        diff = (arm - baseline).dropna()
        base_N = diff.index.get_level_values("base_seed")
        if len(diff) > base_N.nunique() >= LEAST:
            mean = clusters.mean(diff, [1.0] * len(diff), base_N).interval()
            yield (
                f"{row['arm']}, {row['model']}: for other base policies too the change is {signed(mean.mean)} ± "
                f"{share(mean.half_width)} (runs share {mean.n} base policies, which are the units)"
            )


def details(comparison: Comparison) -> Iterator[str]:
    """What to know of the tables of details."""
    k = comparison.trained.k
    yield (
        "<: the arm's mean over tiers ends below that before training; <<: so does the whole 95 % interval of end "
        "minus before, which is paired by base policy and seed and not adjusted for the number of arms."
    )
    yield (
        f"best@{k} = 1 - (1 - c/n)^{k}: {k} draws with replacement from the n samples, as verl's best@{k}/mean. "
        f"pass@{k} = 1 - C(n-c, {k}) / C(n, {k}): the unbiased estimator (Chen et al. 2021)."
    )
    yield (
        "Sources of variance, at equal steps: base, between base policies; seed, between runs of one; problem; rest, "
        "problem by run, and samples."
    )


def gains_grid(comparison: Comparison) -> Grid:
    """The arms' distances from the policies before training, and how their runs ended."""
    training = comparison.trained
    columns: Columns = {
        "equal": lambda row: row["at"].replace("_", " "),
        "model": "model",
        "arm": "arm",
        "before": lambda row: share(row["before"]),
        "end minus before": _change,
        "below": lambda row: row["mark"] or "-",
        **{name: _counted(training, name) for name in ("done", "collapsed", "failed")},
    }
    rows = records(training.gains, metric=comparison.metric)
    title = f"{comparison.metric} averaged over tiers, minus that before training, and how runs ended"
    return Grid.of(title, rows, columns, labels=3, is_detail=True)


def runs_grid(comparison: Comparison) -> Grid:
    """All runs, with their outcomes and the states of their working trees."""
    columns: Columns = {
        "model": "model", "arm": "arm", "base": "base_seed", "seed": "seed", "run": "run_id", "ended": "outcome",
        "tree": "tree",
    }  # fmt: skip
    title = "Runs and the state of their working trees"
    return Grid.of(title, records(comparison.trained.runs), columns, labels=len(columns), is_detail=True)


def _counted(training: Training, outcome: str) -> Any:
    def text(row: Row) -> str:
        return str(len(records(training.runs, model=row["model"], arm=row["arm"], outcome=outcome)))

    return text
