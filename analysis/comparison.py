"""Compares arms with a baseline at equal cost: the numbers of a comparison, before formatting.

A run's score is its mean over the problems of a tier; `average` is the mean over the tiers. Everything after that is
about runs: a pair is one seed from one base policy, trained once by each arm.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from mcpo_cli import records
from mcpo_cli.analysis.frames import PAIR, Runs, Tree
from mcpo_cli.config.plan import Plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError, McpoError, closest, nearest
from mcpo_cli.statistics import effects, stats, variance
from mcpo_cli.statistics.effects import Estimate
from mcpo_cli.statistics.interpolate import at_cost
from mcpo_cli.statistics.power import ALPHA
from mcpo_cli.statistics.stats import Effect
from mcpo_cli.statistics.variance import Components

K = 8
"""The paper's k; a comparison uses fewer if a problem has fewer graded samples."""
AVERAGE = "average"
"""In the place of a tier: the mean over the tiers."""
AXES = {"steps": "step"} | {column.removeprefix("cost/"): column for column in records.AXES}
"""What two runs can have had equally much of, and the column of `Runs.scores` that counts it."""
UNITS = {"steps": "global steps"} | {column.removeprefix("cost/"): words for column, words in records.AXES.items()}
DEFAULT = ("steps", "rollouts")


@dataclass(frozen=True)
class Choice:
    """What a comparison is asked for; an empty field leaves it to the suite, then to the default."""

    baseline: str = ""
    """The arm that the others are compared with; by default the first."""
    metric: str = ""
    """The metric of the headline; by default pass@1."""
    at: tuple[str, ...] = ()
    """Names of AXES; by default DEFAULT, as far as the runs recorded them."""


@dataclass(frozen=True)
class Score:
    """The mean of one metric over the runs of an arm."""

    at: str
    """One of AXES: equal in what."""
    model: str
    arm: str
    tier: str
    """A tier or AVERAGE."""
    metric: str
    seeds: Estimate
    n: int
    """Number of runs."""


@dataclass(frozen=True)
class Difference:
    """Arm minus baseline, paired by base policy and seed."""

    at: str
    model: str
    arm: str
    tier: str
    metric: str
    effect: Effect
    by_seed: tuple[float, ...]
    """Difference of each pair."""
    p_holm: float = np.nan
    """p adjusted over the family: the headline differences, or the others."""

    @property
    def above(self) -> int:
        """Number of pairs with a positive difference, ignoring rounding errors."""
        return sum(value > stats.ROUNDING for value in self.by_seed)

    @property
    def verdict(self) -> str:
        """`above` or `below` where p is at most ALPHA, with `(Holm)` where that holds for the whole family."""
        if not self.effect.p <= ALPHA:
            return "open"
        return ("above" if self.effect.mean > 0 else "below") + (" (Holm)" if self.p_holm <= ALPHA else "")


@dataclass(frozen=True)
class Aggregate:
    """One arm over all tiers and models."""

    at: str
    metric: str
    arm: str
    mean: Estimate
    iqm: Estimate
    better: Estimate | None
    """Probability of improvement over the baseline; None for the baseline."""
    effect: Effect | None
    """Difference of the mean to the baseline's; None for the baseline."""


@dataclass(frozen=True)
class Run:
    """One run of a comparison and the state of the working tree it was trained from."""

    model: str
    arm: str
    base_seed: int
    seed: int
    run_id: str
    tree: Tree


@dataclass(frozen=True)
class Comparison:
    """Scores of all arms of one plan and their differences from `baseline`."""

    plan: Plan
    baseline: str
    metric: str
    """The metric of the headline."""
    spec: RunSpec
    """Any run of the plan, for the settings that all runs share."""
    k: int
    """k of best@k and pass@k."""
    ungraded: int
    """Samples without a verdict, summed over all runs."""
    models: list[str]
    arms: list[str]
    sizes: dict[str, int]
    """Number of problems by tier."""
    metrics: list[str]
    where: dict[tuple[str, str], float]
    """By axis and model: the largest cost that all its runs reach, at which they are compared."""
    scores: list[Score]
    headline: list[Difference]
    """The differences that the comparison is about: the headline's metric averaged over tiers."""
    differences: list[Difference]
    """All other differences at the first axis."""
    aggregates: list[Aggregate]
    components: dict[tuple[str, str], Components]
    """By model and arm: where the variance of the headline's difference comes from, at equal steps."""
    curves: pd.DataFrame
    """The headline's metric averaged over tiers, of each run along each axis: at, x, model, arm, seed, value."""
    final: pd.DataFrame
    """The headline's metric of each run and tier at the first axis: model, arm, tier, seed, value."""
    runs: list[Run]

    @property
    def axes(self) -> list[str]:
        """The names of AXES at which arms are compared."""
        return list(dict.fromkeys(at for at, _ in self.where))

    @property
    def tiers(self) -> list[str]:
        """The held-out tiers in evaluation order."""
        return list(self.sizes)

    def runs_of(self, model: str, *arms: str) -> list[Run]:
        """The runs of these arms on this model."""
        return [run for run in self.runs if run.model == model and run.arm in arms]


def compare(data: Runs, choice: Choice) -> Comparison:
    """Score every arm and compare each with the baseline.

    Raises:
        ConfigError: no such arm, metric or axis.
        McpoError: arms were evaluated with different seeds or problems, or the runs lack the cost that is asked for.
    """
    last = _last(data)
    spec, k = data.cells[0].spec, min(K, int(last["n"].min()))
    metrics = ["pass@1", f"best@{k}", f"pass@{k}"]
    arms, models = last["arm"].unique().tolist(), last["model"].unique().tolist()
    baseline = _known("baseline", choice.baseline or arms[0], arms)
    metric = _known("metric", choice.metric or metrics[0], metrics)
    _check_pairs(last, data.plan)
    scores = data.scores(k)
    axes = _axes(choice.at, scores, data.plan)
    tables = {at: at_equal(scores, AXES[at], metrics) for at in axes}
    where = {(at, model): table.attrs["where"][model] for at, table in tables.items() for model in models}
    sizes = {str(tier): int(rows["problem"].nunique()) for tier, rows in last.groupby("tier", sort=False)}
    problems = {**sizes, AVERAGE: sum(sizes.values())}
    found = [score for at in axes for score in _scores(at, tables[at], problems)]
    headline: list[Difference] = []
    others: list[Difference] = []
    for one in (one for at in axes for one in _differences(at, tables[at], baseline)):
        if (one.tier, one.metric) == (AVERAGE, metric):
            headline.append(one)
        elif one.at == axes[0]:
            others.append(one)
    aggregates = [
        one
        for at in axes
        for name in (metrics if at == axes[0] else [metric])
        for one in _aggregates(at, name, tables[at], baseline)
    ]
    trees = data.trees()
    return Comparison(
        plan=data.plan,
        baseline=baseline,
        metric=metric,
        spec=spec,
        k=k,
        ungraded=len(last) * spec.eval.samples - int(last["n"].sum()),
        models=models,
        arms=arms,
        sizes=sizes,
        metrics=metrics,
        where=where,
        scores=found,
        headline=_adjusted(headline),
        differences=_adjusted(others),
        aggregates=aggregates,
        components=dict(_components(last, baseline, metric)),
        curves=pd.concat([curves(at, scores, metric) for at in axes], ignore_index=True),
        final=_final(tables[axes[0]], metric),
        runs=[
            Run(its.model.name, cell.arm, its.seed_of_base, its.seed, its.run_id, trees[its.run_id])
            for cell in data.cells
            if (its := cell.spec)
        ],
    )


def _last(data: Runs) -> pd.DataFrame:
    """The rows of each run's latest evaluation within the number of steps that all runs have: arms may train longer."""
    rows, most = data.eval(step="all"), min(cell.spec.train.steps for cell in data.cells)
    within = rows[rows["step"] <= most]
    return within[within["step"] == within.groupby("run_id")["step"].transform("max")].reset_index(drop=True)


def _known(what: str, name: str, choices: Sequence[str]) -> str:
    if name not in choices:
        raise ConfigError(f"--{what} {name}: {nearest(name, choices)}", fix=f"--{what} {closest(name, choices)!r}")
    return name


def _axes(wanted: Sequence[str], scores: pd.DataFrame, plan: Plan) -> list[str]:
    """The axes to compare at: those wanted, or of DEFAULT those that all runs recorded."""
    recorded = [at for at, column in AXES.items() if column in scores and not scores[column].isna().any()]
    for at in wanted:
        if _known("at", at, list(AXES)) not in recorded:
            raise McpoError(
                f"not all runs of {plan.suite} recorded their {at}", fix=f"--at {recorded[0]}, or train them again"
            )
    return list(dict.fromkeys(wanted)) or [at for at in DEFAULT if at in recorded]


def _check_pairs(last: pd.DataFrame, plan: Plan) -> None:
    """Raise McpoError unless all arms of a model were evaluated with the same seeds on the same problems."""
    for _, rows in last.groupby("model", sort=False):
        held = [
            set(zip(*(here[name] for name in (*PAIR, "tier", "problem")), strict=True))
            for _, here in rows.groupby("arm", sort=False)
        ]
        if any(one != held[0] for one in held):
            runs = ", ".join(cell.spec.run_id for cell in plan.cells)
            fix = f"remove the runs that an older version trained from runs/, then: {plan.command}"
            raise McpoError(
                f"{plan.suite}: not all runs were evaluated with the same seeds and problems: {runs}", fix=fix
            )


def at_equal(scores: pd.DataFrame, column: str, metrics: Sequence[str]) -> pd.DataFrame:
    """The scores of all runs at the largest cost that all runs of their model reach, linear between evaluations.

    scores: `Runs.scores`. column: the one that counts the cost. Index: model, arm, base_seed, seed, tier (AVERAGE
    included); one column a metric; `attrs["where"]` has that cost by model.
    """
    most = scores.groupby(["model", "arm", *PAIR], sort=False)[column].max()
    where = {str(model): float(reached) for model, reached in most.groupby("model", sort=False).min().items()}
    rows = []
    for (model, arm, *pair, tier), here in scores.groupby(["model", "arm", *PAIR, "tier"], sort=False):
        rising = _rising(here, column)
        costs, end = rising[column].tolist(), where[str(model)]
        values = {name: at_cost(costs, rising[name].tolist(), end) for name in metrics}
        rows.append({"model": model, "arm": arm, **dict(zip(PAIR, pair, strict=True)), "tier": tier, **values})
    frame = pd.DataFrame(rows)
    keys = ["model", "arm", *PAIR]
    means = frame.groupby(keys, sort=False, as_index=False)[list(metrics)].mean().assign(tier=AVERAGE)
    table = pd.concat([frame, means], ignore_index=True).set_index([*keys, "tier"])
    table.attrs["where"] = where
    return table


def _rising(run: pd.DataFrame, column: str) -> pd.DataFrame:
    """The evaluations of one run: of several between which the cost did not rise, the last counts."""
    return run.drop_duplicates(column, keep="last")


def _by_run(table: pd.DataFrame) -> Iterator[tuple[str, str, str, str, pd.Series]]:
    """Model, arm, tier, metric, and the values of the runs by pair."""
    for metric in table.columns:
        for (model, arm, tier), rows in table[metric].groupby(["model", "arm", "tier"], sort=False):
            yield str(model), str(arm), str(tier), str(metric), rows.droplevel(["model", "arm", "tier"])


def _scores(at: str, table: pd.DataFrame, problems: Mapping[str, int]) -> Iterator[Score]:
    for model, arm, tier, metric, runs in _by_run(table):
        seeds = effects.mean([runs.to_numpy()[:, None]], problems[tier])
        yield Score(at, model, arm, tier, metric, seeds, len(runs))


def _differences(at: str, table: pd.DataFrame, baseline: str) -> Iterator[Difference]:
    held = {(model, arm, tier, metric): runs for model, arm, tier, metric, runs in _by_run(table)}
    for (model, arm, tier, metric), runs in held.items():
        if arm != baseline:
            diff_S = (runs - held[model, baseline, tier, metric]).to_numpy()
            yield Difference(at, model, arm, tier, metric, stats.paired_t(diff_S), tuple(diff_S.tolist()))


def _adjusted(family: Sequence[Difference]) -> list[Difference]:
    adjusted = stats.holm([one.effect.p for one in family])
    return [replace(one, p_holm=float(p)) for one, p in zip(family, adjusted, strict=True)]


def _aggregates(at: str, metric: str, table: pd.DataFrame, baseline: str) -> Iterator[Aggregate]:
    tiers = table.drop(index=AVERAGE, level="tier")[metric].unstack("tier", sort=False)
    strata = {
        str(arm): {str(model): one for model, one in rows.groupby("model", sort=False)}
        for arm, rows in tiers.groupby("arm", sort=False)
    }
    theirs = strata[baseline]
    for arm, mine in strata.items():
        matrices = [one.to_numpy() for one in mine.values()]
        about = (at, metric, arm, effects.mean(matrices), effects.interquartile_mean(matrices))
        if arm == baseline:
            yield Aggregate(*about, None, None)
        else:
            better = effects.probability_of_improvement(matrices, [theirs[model].to_numpy() for model in mine])
            diff = [
                (mine[model].mean(axis=1).droplevel(["model", "arm"]))
                - (theirs[model].mean(axis=1).droplevel(["model", "arm"]))
                for model in mine
            ]
            # A seed of several models is one value, as the models may share what the seed decides.
            diff_S = pd.concat(diff, axis=1).mean(axis=1, skipna=False).dropna().to_numpy()
            yield Aggregate(*about, better, stats.paired_t(diff_S) if diff_S.size else None)


def _components(last: pd.DataFrame, baseline: str, metric: str) -> Iterator[tuple[tuple[str, str], Components]]:
    at_k = stats.best_at_k if metric.startswith("best") else stats.pass_at_k
    shares = at_k(last["n"].to_numpy(), last["c"].to_numpy(), int(metric.partition("@")[2]))
    value = last.assign(value=shares, problem=last["tier"] + "\n" + last["problem"])
    for model, rows in value.groupby("model", sort=False):
        by_arm = {
            arm: here.pivot(index=PAIR, columns="problem", values="value")
            for arm, here in rows.groupby("arm", sort=False)
        }
        for arm, mine in by_arm.items():
            diff = mine - by_arm[baseline]
            if arm != baseline and len(diff) > 1 and diff.shape[1] > 1 and not diff.isna().to_numpy().any():
                bases = diff.index.get_level_values("base_seed").to_numpy()
                yield (str(model), str(arm)), variance.components(diff.to_numpy(), bases)


def curves(at: str, scores: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Each run's mean over tiers at the costs of the first run's evaluations, up to the cost that all runs reach.

    Columns: at, x, model, arm, base_seed, seed, value. at: one of AXES. scores: `Runs.scores`.
    """
    column, keys = AXES[at], ["model", "arm", *PAIR]
    mean = scores.groupby([*keys, "step", column], sort=False, as_index=False)[metric].mean()
    blocks = []
    for _, rows in mean.groupby("model", sort=False):
        runs = [pd.DataFrame(here) for _, here in rows.groupby(keys, sort=False)]
        end = min(here[column].max() for here in runs)
        grid = [*(cost for cost in runs[0][column] if cost < end), end]
        for here in runs:
            rising = _rising(here, column)
            costs, reached = rising[column].tolist(), rising[metric].tolist()
            values = [at_cost(costs, reached, where) for where in grid]
            about = {name: here[name].iloc[0] for name in ("model", "arm", *PAIR)}
            blocks.append(pd.DataFrame({**about, "at": at, "x": grid, "value": values}))
    return pd.concat(blocks, ignore_index=True)


def _final(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    return table.drop(index=AVERAGE, level="tier")[metric].rename("value").reset_index()
