"""Facts that only runs of mcpo have: their outcomes, scores before training, and learning curves, at equal cost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from mcpo_cli.compare import equal_cost
from mcpo_cli.compare.equal_cost import AVERAGE
from mcpo_cli.config.plan import Plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.measures.frames import PAIR, Runs, tree
from mcpo_cli.render.product import Row
from mcpo_cli.statistics import effects, stats
from mcpo_cli.statistics.stats import Effect
from mcpo_cli.statistics.words import Word


@dataclass(frozen=True)
class Training:
    """The training of the runs that are compared."""

    plan: Plan
    spec: RunSpec
    """Any run of the plan, for the settings that all runs share."""
    metric: str
    k: int
    """k of best@k and pass@k."""
    ungraded: int
    """Samples without a verdict, summed over all runs."""
    where: dict[tuple[str, str], float]
    """By axis and model: the largest cost that all its runs reach, at which they are compared."""
    runs: pd.DataFrame
    """model, arm, base_seed, seed, run_id, tree (`frames.Tree`), outcome (done, collapsed or failed), error. A failed
    run has no score; a collapsed run counts like any other."""
    before: pd.DataFrame
    """model, benchmark, metric, arm, mean, low, high, seeds of the base policies; `arm` is BEFORE, with names of arms
    where not all share them."""
    gains: pd.DataFrame
    """at, model, arm, metric, before, the columns of an `Effect`, mark: the arm's average minus its base policies'
    average, in each metric at the first axis and in the headline's metric at the others. mark: see `_mark`."""
    paths: pd.DataFrame
    """The headline's metric averaged over tiers, of each run along each axis: `equal_cost.curves`."""
    final: pd.DataFrame
    """The headline's metric of each run and tier at the first axis: model, arm, base_seed, seed, tier, value."""

    @property
    def curves(self) -> pd.DataFrame:
        """The `paths` where all arms have a value: at, x, model, arm, base_seed, seed, value."""
        return self.paths[self.paths["shared"]].drop(columns=["measured", "shared"]).reset_index(drop=True)

    def scored(self, model: str, *arms: str) -> pd.DataFrame:
        """The runs of these arms on this model that have a score."""
        runs = self.runs
        return runs[(runs["model"] == model) & runs["arm"].isin(arms) & (runs["outcome"] != "failed")]

    def gain(self, at: str, model: str, arm: str, metric: str = "") -> Row:
        """The gain of an arm over its base policies. metric: by default the headline's."""
        rows: Any = self.gains.to_dict("records")
        wanted = (at, model, arm, metric or self.metric)
        (row,) = (row for row in rows if (row["at"], row["model"], row["arm"], row["metric"]) == wanted)
        return dict(row)

    def in_words(self, row: Mapping[str, Any], baseline: str) -> str:
        """A difference of the headline in words that say whether the arms gain or lose over their base policies."""
        mark, baseline_mark = (self.gain(row["at"], row["model"], arm)["mark"] for arm in (row["arm"], baseline))
        return gained(row["verdict"], bool(mark), bool(baseline_mark), baseline)


def gained(verdict: Word, loses: bool, baseline_loses: bool, baseline: str) -> str:
    """A difference in words: `loses less than DAPO`."""
    if verdict not in ("better", "worse"):
        return f"{verdict} against {baseline}"
    if loses != baseline_loses:
        does = ("loses", "gains") if loses else ("gains", "loses")
        return f"{does[0]} where {baseline} {does[1]}"
    is_more = (verdict == "better") != loses
    return f"{'loses' if loses else 'gains'} {'more' if is_more else 'less'} than {baseline}"


def training(
    data: Runs,
    scores: pd.DataFrame,
    at_costs: pd.DataFrame,
    costs: dict[tuple[str, str], float],
    metrics: Sequence[str],
    k: int,
) -> Training:
    """The training of runs whose scores at equal cost are known.

    Args:
        scores: `Runs.scores`, of all evaluations.
        at_costs: the scores of the runs at equal cost (`runs.run_scores`).
        costs: see `Training.where`.
        metrics: the first is the headline's.
    """
    metric, last = metrics[0], equal_cost.last(data)
    axes = list(dict.fromkeys(at_costs["at"]))
    sizes = {str(tier): int(rows["problem"].nunique()) for tier, rows in last.groupby("tier", sort=False)}
    starts, began = equal_cost.base_policies(scores, data.plan.runs, metrics)
    ends, first = equal_cost.with_starts(at_costs, starts, began), at_costs["at"] == axes[0]
    final = at_costs[first & (at_costs["metric"] == metric) & (at_costs["tier"] != AVERAGE)]
    return Training(
        plan=data.plan,
        spec=data.planned[0].spec,
        metric=metric,
        k=k,
        ungraded=len(last) * data.planned[0].spec.eval.samples - int(last["n"].sum()),
        where=costs,
        runs=pd.DataFrame(_runs(data, equal_cost.collapsed(ends[ends["at"] == axes[0]]))),
        before=pd.DataFrame(_before(began, sizes)),
        gains=pd.DataFrame(_gains(ends)),
        paths=pd.concat([equal_cost.curves(at, scores, metric) for at in axes], ignore_index=True),
        final=final[[*PAIR, "value", "model", "arm", "tier"]].reset_index(drop=True),
    )


def _runs(data: Runs, collapsed: set[tuple[str, str, int, int]]) -> Iterator[Row]:
    """All runs of the plan, in its order."""
    errors = {failure.planned.spec.run_id: failure.error for failure in data.failed}
    for run in data.plan.runs:
        spec = run.spec
        key = (spec.model.name, run.arm, spec.seed_of_base, spec.seed)
        error = errors.get(spec.run_id)
        outcome = "done" if error is None else "failed"
        yield dict(zip(("model", "arm", *PAIR), key, strict=True)) | {
            "run_id": spec.run_id,
            "tree": tree(run),
            "outcome": "collapsed" if key in collapsed else outcome,
            "error": error or "",
        }


def _before(began: pd.DataFrame, sizes: Mapping[str, int]) -> Iterator[Row]:
    problems = {**sizes, AVERAGE: sum(sizes.values())}
    groups: Any = began.groupby(["metric", "model", "arm", "tier"], sort=False)["value"]
    for (metric, model, arm, tier), runs in groups:
        mean = effects.mean([runs.to_numpy()[:, None]], problems[tier])
        yield {"model": model, "benchmark": tier, "metric": metric, "arm": arm} | {
            "mean": mean.value, "low": mean.low, "high": mean.high, "seeds": len(runs)
        }  # fmt: skip


def _gains(ends: pd.DataFrame) -> Iterator[Row]:
    names = ["at", "model", "arm", "metric"]
    groups: Any = ends.groupby(names, sort=False)
    for key, runs in groups:
        effect = stats.paired_t((runs["value"] - runs["before"]).tolist())
        labels = {**dict(zip(names, key, strict=True)), "before": float(runs["before"].mean())}
        yield {**labels, **effect.columns(), "mark": _mark(effect)}


def _mark(gain: Effect) -> str:
    """`<` if the mean ends below the mean before training, `<<` if the whole 95 % interval does."""
    if gain.mean >= -stats.ROUNDING:
        return ""
    return "<<" if gain.high < 0 else "<"
