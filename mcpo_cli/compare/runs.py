"""Runs of mcpo as scores at equal cost, compared: a pair is one seed from one base policy, trained once by each arm."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from mcpo_cli.compare import equal_cost
from mcpo_cli.compare.comparison import Comparison, Question, compare
from mcpo_cli.compare.equal_cost import AVERAGE, AXES
from mcpo_cli.compare.scores import Arm, Metric, Scores, Slice
from mcpo_cli.compare.training import training
from mcpo_cli.measures.frames import PAIR, Runs
from mcpo_cli.measures.scores import K
from mcpo_cli.render.product import Row
from mcpo_cli.statistics import variance


def of_runs(data: Runs, question: Question) -> Comparison:
    """Score every arm at equal cost and compare each with the baseline.

    Failed runs (`Runs.failed`) are outcomes of their arms: they are listed, and differences leave out their pairs.

    Raises:
        ConfigError: no such arm, metric or axis.
        McpoError: arms were evaluated with different seeds or problems, the runs did not record the cost asked for, or
            failures leave an arm without a pair of runs.
    """
    arms = list(dict.fromkeys(run.arm for run in data.plan.runs))
    wanted = data.plan.same.get(question.baseline, question.baseline)
    baseline = equal_cost.check_name("baseline", wanted or arms[0], arms)
    equal_cost.check_failed(data, baseline)
    last = equal_cost.last(data)
    k = min(K, int(last["n"].min()))
    defaults = list(dict.fromkeys(["pass@1", f"best@{k}", f"pass@{k}"]))
    names = [equal_cost.check_name("metric", name, defaults) for name in question.metrics]
    metrics = list(dict.fromkeys([*names, *defaults]))
    equal_cost.check_pairs(last, data.plan)
    scores = data.scores(k)
    problems = _values(data, [Metric.parse(name) for name in defaults])
    slices: list[Slice] = []
    costs: dict[tuple[str, str], float] = {}
    for at in equal_cost.axes(question.at, scores, data.plan):
        for model, cost, places in equal_cost.places(scores, AXES[at]):
            slices.append(Slice(list(_arms(problems, places)), at, model))
            costs[at, model] = cost
    comparison = compare(slices, replace(question, baseline=baseline, metrics=tuple(metrics)))
    return replace(
        comparison,
        sources=pd.DataFrame(_sources(last, baseline, metrics[0])),
        training=training(data, scores, run_scores(slices, metrics), costs, metrics, k),
    )


def _values(data: Runs, metrics: Sequence[Metric]) -> dict[tuple[str, int], pd.DataFrame]:
    """By run and step: n and the metrics of each problem (rows: tier, problem)."""
    rows = data.eval(step="all")
    counts = rows["n"].to_numpy(), rows["c"].to_numpy()
    table = pd.DataFrame({"n": rows["n"], **{str(metric): metric.of_counts(*counts) for metric in metrics}})
    table = table.assign(**{name: rows[name] for name in ("run_id", "step", "tier", "problem")})
    groups: Iterable[tuple[Any, pd.DataFrame]] = table.groupby(["run_id", "step"], sort=False)
    return {
        (str(run_id), int(step)): part.set_index(["tier", "problem"]).drop(columns=["run_id", "step"])
        for (run_id, step), part in groups
    }


def _arms(
    problems: Mapping[tuple[str, int], pd.DataFrame], places: Mapping[str, Mapping[tuple[int, int], equal_cost.Place]]
) -> Iterator[Arm]:
    """The arms of one model at one cost. places: by arm and pair, where its run reaches the cost."""
    for arm, of_pairs in places.items():
        tables = [_between(problems, place) for place in of_pairs.values()]
        index = tables[0].index
        table_S = [table.reindex(index) for table in tables]
        seeds = tuple(equal_cost.seed_name(*pair) for pair in of_pairs)
        scores: dict[str, Scores] = {}
        for tier in dict.fromkeys(index.get_level_values("tier")):
            tier_S = [table.loc[tier] for table in table_S]
            samples_SP = np.array([table["n"].fillna(0) for table in tier_S]).astype(np.int64)
            values = {
                Metric.parse(name): np.array([table[name] for table in tier_S], dtype=np.float64)
                for name in tier_S[0].columns
                if name != "n"
            }
            sum_SP = np.where(samples_SP > 0, values[Metric("pass", 1)] * samples_SP, 0.0)
            scores[str(tier)] = Scores(seeds, tuple(map(str, tier_S[0].index)), samples_SP, sum_SP, sum_SP, values)
        yield Arm(arm, scores, named_seeds=True)


def _between(problems: Mapping[tuple[str, int], pd.DataFrame], place: equal_cost.Place) -> pd.DataFrame:
    """Scores at a cost, linear between the evaluations around it."""
    low = problems[place.run_id, place.before]
    if not place.share:
        return low
    high = problems[place.run_id, place.after].reindex(low.index)
    blend = low + place.share * (high - low)
    return blend.assign(n=np.minimum(low["n"], high["n"]))


def run_scores(slices: Sequence[Slice], metrics: Sequence[str]) -> pd.DataFrame:
    """The score of each run at each cost: at, model, arm, metric, base_seed, seed, tier (AVERAGE included), value.

    metrics: all of them at the first cost, the first metric at the other costs.
    """
    blocks = []
    for part in slices:
        for metric in metrics if part.at == slices[0].at else metrics[:1]:
            for arm in part.arms:
                means = {
                    tier: pd.Series(Metric.parse(metric).of(scores).mean(axis=1), _pairs(scores.seeds))
                    for tier, scores in arm.scores.items()
                }
                table = pd.concat(means, axis=1)
                table[AVERAGE] = table.mean(axis=1)
                block = table.reset_index().melt(PAIR, var_name="tier")
                blocks.append(block.assign(at=part.at, model=part.model, arm=arm.name, metric=metric))
    return pd.concat(blocks, ignore_index=True)


def _pairs(seeds: Sequence[str]) -> pd.MultiIndex:
    parted = [seed.split("/") for seed in seeds]
    return pd.MultiIndex.from_tuples([(int(parts[0]), int(parts[-1])) for parts in parted], names=PAIR)


def _sources(last: pd.DataFrame, baseline: str, metric: str) -> Iterator[Row]:
    """The sources of the variance of the headline's difference, at equal steps, base policies included."""
    shares = Metric.parse(metric).of_counts(last["n"].to_numpy(), last["c"].to_numpy())
    value = last.assign(value=shares, problem=last["tier"] + "\n" + last["problem"])
    for model, rows in value.groupby("model", sort=False):
        by_arm = {
            arm: part.pivot(index=PAIR, columns="problem", values="value")
            for arm, part in rows.groupby("arm", sort=False)
        }
        for arm, table in by_arm.items():
            diff = (table - by_arm[baseline]).dropna(how="all")
            if arm != baseline and len(diff) > 1 and diff.shape[1] > 1 and not diff.isna().to_numpy().any():
                bases = diff.index.get_level_values("base_seed").to_numpy()
                components = variance.components(diff.to_numpy(), bases)
                total = sum(components.parts.values())
                for source in ("base", "seed", "problem", "rest"):
                    if not math.isnan(sd := getattr(components, source)):
                        share = components.parts[source] / total if total > 0 else 0.0
                        labels = {"at": "steps", "model": model, "benchmark": AVERAGE, "arm": arm}
                        yield labels | {"source": source, "sd": sd, "share": share}
