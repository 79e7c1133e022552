"""Compares arms with a baseline at equal cost: the numbers of a comparison, before formatting.

A run's score is its mean over the problems of a tier; `average` is the mean over the tiers. Everything after that is
about runs: a pair is one seed from one base policy, trained once by each arm.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from mcpo_cli.analysis import base_policies, equal_cost
from mcpo_cli.analysis.base_policies import BasePolicies, Gain
from mcpo_cli.analysis.differences import Difference, adjusted, differences
from mcpo_cli.analysis.equal_cost import AVERAGE, AXES, at_equal, by_run
from mcpo_cli.analysis.frames import PAIR, Runs, Tree, tree
from mcpo_cli.config.plan import Cell, Plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import McpoError
from mcpo_cli.statistics import effects, stats, variance
from mcpo_cli.statistics.effects import Estimate
from mcpo_cli.statistics.stats import Effect
from mcpo_cli.statistics.variance import Components

K = 8
"""The paper's k; a comparison uses fewer if a problem has fewer graded samples."""


@dataclass(frozen=True)
class Choice:
    """What a comparison is asked for; an empty field leaves it to the suite, then to the default."""

    baseline: str = ""
    """The arm that the others are compared with; by default the first."""
    metric: str = ""
    """The metric of the headline; by default pass@1."""
    at: tuple[str, ...] = ()
    """Names of AXES; by default those of `equal_cost.DEFAULT` that the runs recorded."""


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
    """One run of a comparison, how it ended, and the state of the working tree it was trained from."""

    model: str
    arm: str
    base_seed: int
    seed: int
    run_id: str
    tree: Tree
    outcome: Literal["done", "collapsed", "failed"]
    """A failed run has no score; one that collapsed (`base_policies.COLLAPSED`) counts like any other."""
    error: str = ""
    """Why it failed."""


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
    before: list[Score]
    """Scores of the base policies; `arm` is `base_policies.BEFORE`, with names of arms where not all share them."""
    gains: list[Gain]
    """Of each arm, in each metric at the first axis, and in the headline's metric at the others."""
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

    def arms_of(self, model: str) -> list[str]:
        """The arms that were trained on this model."""
        return [arm for arm in self.arms if self.runs_of(model, arm)]

    def runs_of(self, model: str, *arms: str) -> list[Run]:
        """The runs of these arms on this model that have a score."""
        return [run for run in self.runs if run.model == model and run.arm in arms and run.outcome != "failed"]

    def ended(self, outcome: str) -> list[Run]:
        """The runs with this outcome."""
        return [run for run in self.runs if run.outcome == outcome]

    def gain(self, at: str, model: str, arm: str, metric: str = "") -> Gain:
        """The gain of an arm over its base policies. metric: by default the headline's."""
        wanted = (at, model, arm, metric or self.metric)
        return next(one for one in self.gains if (one.at, one.model, one.arm, one.metric) == wanted)

    def in_words(self, one: Difference) -> str:
        """A difference of the headline in words that say whether the arms gain or lose over their base policies."""
        mine, baseline = (self.gain(one.at, one.model, arm) for arm in (one.arm, self.baseline))
        return base_policies.compared(one.verdict, mine, baseline)


def compare(data: Runs, choice: Choice) -> Comparison:
    """Score every arm and compare each with the baseline.

    Failed runs (`Runs.failed`) are outcomes of their arms: they are listed, and differences leave out their pairs.

    Raises:
        ConfigError: no such arm, metric or axis.
        McpoError: arms were evaluated with different seeds or problems, the runs lack the cost that is asked for, or
            no pair of some arm has both runs because the others failed.
    """
    arms = list(dict.fromkeys(cell.arm for cell in data.plan.cells))
    models = list(dict.fromkeys(cell.spec.model.name for cell in data.plan.cells))
    wanted = data.plan.same.get(choice.baseline, choice.baseline)
    baseline = equal_cost.known("baseline", wanted or arms[0], arms)
    _check_failed(data, baseline)
    last = _last(data)
    spec, k = data.cells[0].spec, min(K, int(last["n"].min()))
    metrics = list(dict.fromkeys(["pass@1", f"best@{k}", f"pass@{k}"]))
    metric = equal_cost.known("metric", choice.metric or metrics[0], metrics)
    _check_pairs(last, data.plan)
    scores = data.scores(k)
    axes = equal_cost.axes(choice.at, scores, data.plan)
    tables = {at: at_equal(scores, AXES[at], metrics) for at in axes}
    asked = {at: metrics if at == axes[0] else [metric] for at in axes}
    sizes = {str(tier): int(rows["problem"].nunique()) for tier, rows in last.groupby("tier", sort=False)}
    problems = {**sizes, AVERAGE: sum(sizes.values())}
    bases = base_policies.base_policies(scores, data.plan.cells, metrics)
    headline, others = _families([one for at in axes for one in differences(at, tables[at], baseline)], metric)
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
        where={(at, model): table.attrs["where"][model] for at, table in tables.items() for model in models},
        scores=[score for at in axes for score in _scores(at, tables[at], problems)],
        before=[score for one in bases for score in _before(axes[0], one, problems)],
        gains=[one for at in axes for one in base_policies.gains(at, tables[at][asked[at]], bases)],
        headline=adjusted(headline),
        differences=adjusted(others),
        aggregates=[one for at in axes for name in asked[at] for one in _aggregates(at, name, tables[at], baseline)],
        components=dict(_components(last, baseline, metric)),
        curves=pd.concat([equal_cost.curves(at, scores, metric) for at in axes], ignore_index=True),
        final=_final(tables[axes[0]], metric),
        runs=list(_runs(data, tables[axes[0]], bases)),
    )


def _last(data: Runs) -> pd.DataFrame:
    """The rows of each run's latest evaluation within the number of steps that all runs have: arms may train longer."""
    rows, most = data.eval(step="all"), min(cell.spec.train.steps for cell in data.cells)
    within = rows[rows["step"] <= most]
    return within[within["step"] == within.groupby("run_id")["step"].transform("max")].reset_index(drop=True)


def _check_pairs(last: pd.DataFrame, plan: Plan) -> None:
    """Raise McpoError unless all arms of a model have the same seeds and were evaluated on the same problems."""
    pairs: dict[tuple[str, str], set[Pair]] = {}
    for cell in plan.cells:
        pairs.setdefault((cell.spec.model.name, cell.arm), set()).add(_pair(cell))
    seeds: dict[str, set[frozenset[Pair]]] = {}
    for (model, _), held in pairs.items():
        seeds.setdefault(model, set()).add(frozenset(held))
    problems: dict[str, set[frozenset[tuple[str, str]]]] = {}
    for _, rows in last.groupby(["model", "arm", *PAIR], sort=False):
        asked = frozenset(zip(rows["tier"], rows["problem"], strict=True))
        problems.setdefault(rows["model"].iloc[0], set()).add(asked)
    if max(map(len, seeds.values())) > 1 or max(map(len, problems.values())) > 1:
        runs = ", ".join(cell.spec.run_id for cell in plan.cells)
        fix = f"remove the runs that an older version trained from runs/, then: {plan.command}"
        raise McpoError(f"{plan.suite}: not all runs were evaluated with the same seeds and problems: {runs}", fix=fix)


def _check_failed(data: Runs, baseline: str) -> None:
    """Raise McpoError where failures leave an arm without a pair to compare."""
    scored: dict[tuple[str, str], set[Pair]] = {}
    for cell in data.cells:
        scored.setdefault((cell.spec.model.name, cell.arm), set()).add(_pair(cell))
    for cell in data.plan.cells if data.failed else ():
        model = cell.spec.model.name
        mine, theirs = (scored.get((model, arm), set()) for arm in (cell.arm, baseline))
        if not mine & theirs:
            errors = "; ".join(f"{one.cell.arm}, {one.cell.spec.run_id}: {one.error}" for one in data.failed)
            raise McpoError(
                f"{data.plan.suite}: no seed has a completed run of both {cell.arm} and {baseline} on {model}, as runs "
                f"failed: {errors}",
                fix=f"compare the other arms alone, or continue the runs: {data.plan.command}",
            )


Pair = tuple[int, int]
"""Base seed and seed."""


def _pair(cell: Cell) -> Pair:
    return cell.spec.seed_of_base, cell.spec.seed


def _runs(data: Runs, table: pd.DataFrame, bases: Sequence[BasePolicies]) -> Iterator[Run]:
    """All runs of the plan, in its order. table: the scores at the first axis."""
    trees, collapsed = data.trees(), base_policies.collapsed(table, bases)
    failed = {one.cell.spec.run_id: one for one in data.failed}
    for cell in data.plan.cells:
        about = (cell.spec.model.name, cell.arm, *_pair(cell))
        run_id = cell.spec.run_id
        if run_id in failed:
            yield Run(*about, run_id, tree(cell), "failed", failed[run_id].error)
        else:
            yield Run(*about, run_id, trees[run_id], "collapsed" if about in collapsed else "done")


def _scores(at: str, table: pd.DataFrame, problems: Mapping[str, int]) -> Iterator[Score]:
    for model, arm, tier, metric, runs in by_run(table):
        seeds = effects.mean([runs.to_numpy()[:, None]], problems[tier])
        yield Score(at, model, arm, tier, metric, seeds, len(runs))


def _before(at: str, base: BasePolicies, problems: Mapping[str, int]) -> Iterator[Score]:
    for tier, rows in base.scores.groupby("tier", sort=False):
        for metric in base.scores.columns:
            seeds = effects.mean([rows[[metric]].to_numpy()], problems[str(tier)])
            yield Score(at, base.model, base.name, str(tier), str(metric), seeds, len(rows))


def _families(found: Sequence[Difference], metric: str) -> tuple[list[Difference], list[Difference]]:
    """The differences of the headline, and the others at the first axis."""
    headline = [one for one in found if (one.tier, one.metric) == (AVERAGE, metric)]
    others = [one for one in found if one.at == found[0].at and (one.tier, one.metric) != (AVERAGE, metric)]
    if len({one.tier for one in found}) == 2:
        # The average over a single tier is the tier again.
        others = [one for one in others if one.tier != AVERAGE]
    return headline, others


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
            diff = (mine - by_arm[baseline]).dropna(how="all")
            if arm != baseline and len(diff) > 1 and diff.shape[1] > 1 and not diff.isna().to_numpy().any():
                bases = diff.index.get_level_values("base_seed").to_numpy()
                yield (str(model), str(arm)), variance.components(diff.to_numpy(), bases)


def _final(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    return table.drop(index=AVERAGE, level="tier")[metric].rename("value").reset_index()
