"""Pairs of runs, and their scores before training and at equal cost, for comparisons.

A pair is one seed from one base policy, trained once by each arm. Costs are equal where the first run ends; scores are
interpolated, never extrapolated.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mcpo_cli import records
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.errors import ConfigError, McpoError, mend, nearest
from mcpo_cli.measures.frames import PAIR, Runs
from mcpo_cli.statistics.curves import at_cost

AVERAGE = "average"
"""Used as a tier: the mean over the tiers."""
BEFORE = "before training"
"""Used as an arm: the policies that the runs started from."""
COLLAPSED = 0.5
"""A run collapsed if its pass@1, averaged over tiers, ends below this share of its base policy's."""
AXES = {"steps": "step"} | {column.removeprefix("cost/"): column for column in records.AXES}
"""Budgets at which runs are compared, and the column of `Runs.scores` that counts each."""
UNITS = {"steps": "global steps"} | {column.removeprefix("cost/"): unit for column, unit in records.AXES.items()}
DEFAULT = ("steps", "rollouts")
Pair = tuple[int, int]
"""Base seed and seed."""


def shown(benchmark: str) -> str:
    """The name of a benchmark in tables, or of the mean over all."""
    return "mean" if benchmark == AVERAGE else benchmark


def seed_name(base_seed: int, seed: int) -> str:
    """The name of a pair: `3`, or `1/3` for seed 3 from base policy 1."""
    return str(seed) if base_seed == seed else f"{base_seed}/{seed}"


def check_name(option: str, name: str, choices: Sequence[str]) -> str:
    """`name`, if it is one of `choices`; `option` is the option that names it. Raises ConfigError otherwise."""
    if name not in choices:
        raise ConfigError(f"--{option} {name}: {nearest(name, choices)}", fix=mend(f"--{option} '{{}}'", name, choices))
    return name


def axes(wanted: Sequence[str], scores: pd.DataFrame, plan: Plan) -> list[str]:
    """The axes to compare at: `wanted`, or else the axes of DEFAULT that all runs recorded."""
    recorded = [at for at, column in AXES.items() if column in scores and not scores[column].isna().any()]
    for at in wanted:
        if check_name("at", at, list(AXES)) not in recorded:
            raise McpoError(
                f"not all runs of {plan.suite} recorded their {at}", fix=f"--at {recorded[0]}, or train them again"
            )
    return list(dict.fromkeys(wanted)) or [at for at in DEFAULT if at in recorded]


@dataclass(frozen=True)
class Place:
    """Where a run reaches a cost: at an evaluation, or between two."""

    run_id: str
    before: int
    """The step of the evaluation at the cost, or of the last evaluation before it."""
    after: int
    share: float
    """Share of the way, in cost, from that evaluation to the next; 0 at an evaluation."""


def places(scores: pd.DataFrame, column: str) -> Iterator[tuple[str, float, dict[str, dict[Pair, Place]]]]:
    """For each model: its name, the largest cost that all its runs reach, and by arm and pair where it is reached.

    scores: `Runs.scores`. column: the column that counts the cost.
    """
    for model, rows in scores.groupby("model", sort=False):
        runs = [(key, run) for key, run in _rising(rows, ["arm", *PAIR], column)]
        cost = min(float(run[column].max()) for _, run in runs)
        reached: dict[str, dict[Pair, Place]] = {}
        for (arm, base_seed, seed), run in runs:
            cost_E, step_E = run[column].to_numpy(), run["step"].to_numpy()
            at = int(np.searchsorted(cost_E, cost, side="right")) - 1
            after = min(at + 1, len(cost_E) - 1)
            share = (cost - cost_E[at]) / (cost_E[after] - cost_E[at]) if cost > cost_E[at] else 0.0
            place = Place(str(run["run_id"].iloc[0]), int(step_E[at]), int(step_E[after]), float(share))
            reached.setdefault(str(arm), {})[int(base_seed), int(seed)] = place
        yield str(model), cost, reached


def last(data: Runs) -> pd.DataFrame:
    """The rows of each run's latest evaluation within the number of steps that all runs have: arms may train longer."""
    rows, limit = data.eval(step="all"), min(run.spec.train.steps for run in data.planned)
    part = rows[rows["step"] <= limit]
    return part[part["step"] == part.groupby("run_id")["step"].transform("max")].reset_index(drop=True)


def with_average(scores: pd.DataFrame, keys: Sequence[str], metrics: Sequence[str]) -> pd.DataFrame:
    """Mean scores by `keys` and tier, which are the index, and after them the means over the tiers as AVERAGE."""
    tiers = scores.groupby([*keys, "tier"], sort=False)[list(metrics)].mean().reset_index()
    means = tiers.groupby(list(keys), sort=False, as_index=False)[list(metrics)].mean().assign(tier=AVERAGE)
    return pd.concat([tiers, means], ignore_index=True).set_index([*keys, "tier"])


def _rising(scores: pd.DataFrame, keys: Sequence[str], column: str) -> Iterator[tuple[Any, pd.DataFrame]]:
    """The evaluations of each run; where the cost did not rise between several, only the last of them."""
    yield from scores.drop_duplicates([*keys, column], keep="last").groupby(list(keys), sort=False)


def curves(at: str, scores: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Each run's mean over tiers at the costs of the evaluations of its arm, up to the cost that all runs reach.

    Columns: at, x, model, arm, base_seed, seed, value; measured: whether the run was evaluated there, else the value is
    interpolated; shared: whether x is the cost of an evaluation of the first run, at which all arms have a value.
    at: one of AXES. scores: `Runs.scores`.
    """
    column, keys = AXES[at], ["model", "arm", *PAIR]
    mean = scores.groupby([*keys, "step", column], sort=False, as_index=False)[[metric]].mean()
    blocks = []
    for _, rows in mean.groupby("model", sort=False):
        runs = [(key, run[column].tolist(), run[metric].tolist()) for key, run in _rising(rows, keys, column)]
        end = min(max(costs) for _, costs, _ in runs)
        shared = {*(cost for cost in runs[0][1] if cost < end), end}
        costs_of = {arm: {cost for cost in part[column] if cost < end} for arm, part in rows.groupby("arm")}
        for key, costs, reached in runs:
            labels = dict(zip(keys, key, strict=True))
            grid = sorted(shared | costs_of[labels["arm"]])
            points = {
                "x": grid,
                "value": [at_cost(costs, reached, cost) for cost in grid],
                "measured": [cost in costs for cost in grid],
                "shared": [cost in shared for cost in grid],
            }
            blocks.append(pd.DataFrame({**labels, "at": at, **points}))
    return pd.concat(blocks, ignore_index=True)


def base_policies(
    scores: pd.DataFrame, runs: Sequence[PlannedRun], metrics: Sequence[str]
) -> tuple[dict[tuple[str, str], str], pd.DataFrame]:
    """Scores of the base policies from the evaluations at step 0, by model and the arms that share them.

    All arms of a pair evaluate one base policy. The local engine gives all of them the same samples; where samples
    differ, the mean over the arms is the better estimate. Seeds of one base policy keep their own evaluations, so that
    the sampling errors of different pairs stay independent.

    Args:
        scores: `Runs.scores`.
        runs: all runs of the plan.

    Returns:
        The name of the base policies of each model and arm: BEFORE, with the arms where others of the model start from
        other policies. And their scores, a row per pair, tier (AVERAGE included) and metric, with that name as the arm.
    """
    bases: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        bases.setdefault((run.spec.model.name, run.arm), set()).add(run.spec.base_id)
    sharing: dict[tuple[str, frozenset[str]], list[str]] = {}
    for (model, arm), ids in bases.items():
        sharing.setdefault((model, frozenset(ids)), []).append(arm)
    names: dict[tuple[str, str], str] = {}
    for (model, _), arms in sharing.items():
        is_only = sum(model == name for name, _ in sharing) == 1
        names |= {(model, arm): BEFORE if is_only else f"{BEFORE} ({', '.join(arms)})" for arm in arms}
    start = scores[scores["step"] == 0]
    frame = start.assign(arm=[names[pair] for pair in zip(start["model"], start["arm"], strict=True)])
    keys = ["model", "arm", *PAIR]
    table = with_average(frame, keys, metrics).reset_index()
    return names, table.melt([*keys, "tier"], list(metrics), var_name="metric")


def with_starts(scores: pd.DataFrame, starts: Mapping[tuple[str, str], str], before: pd.DataFrame) -> pd.DataFrame:
    """The averages over tiers of all runs, with `before`: the averages of the policies that the runs started from.

    scores, before: a row per run, tier and metric with its `value`; in `before`, the arm is a name of base policies.
    starts: that name, by model and arm.
    """
    end = scores[scores["tier"] == AVERAGE]
    frame = end.assign(start=[starts[pair] for pair in zip(end["model"], end["arm"], strict=True)])
    began = before[before["tier"] == AVERAGE].rename(columns={"arm": "start", "value": "before"})
    return frame.merge(began.drop(columns="tier"), how="left", on=["model", "start", "metric", *PAIR])


def collapsed(ends: pd.DataFrame) -> set[tuple[str, str, int, int]]:
    """Model, arm, base seed and seed of the runs that collapsed. ends: rows of `with_starts`, at one cost."""
    low = ends[(ends["metric"] == "pass@1") & (ends["value"] < COLLAPSED * ends["before"])]
    return set(low[["model", "arm", *PAIR]].itertuples(index=False, name=None))


def check_pairs(last: pd.DataFrame, plan: Plan) -> None:
    """Raise ConfigError unless all arms of a model have the same seeds and were evaluated on the same problems."""
    pairs = _pairs(plan.runs)
    for model in dict.fromkeys(model for model, _ in pairs):
        seeds = {arm: values for (of, arm), values in pairs.items() if of == model}
        if len(set(map(frozenset, seeds.values()))) > 1:
            raise _unpaired(plan, model, seeds)
    for of, rows in last.groupby("model", sort=False):
        groups: dict[frozenset[tuple[str, str]], set[str]] = {}
        for (arm, *_), part in rows.groupby(["arm", *PAIR], sort=False):
            groups.setdefault(frozenset(zip(part["tier"], part["problem"], strict=True)), set()).add(str(arm))
        if len(groups) > 1:
            raise ConfigError(
                f"{plan.suite}: the runs on {of} were evaluated on different problems, which do not pair: "
                + " against ".join(", ".join(sorted(arms)) for arms in groups.values()),
                fix="train them with one value of task.*, eval.problems and eval.samples",
                code="nothing_pairs",
            )


def _unpaired(plan: Plan, model: str, seeds: Mapping[str, set[Pair]]) -> ConfigError:
    """The error of arms with different seeds: the runs whose seeds all arms have can be compared."""
    common = set.intersection(*seeds.values())
    listed = "; ".join(
        f"{arm}: {', '.join(seed_name(*pair) for pair in sorted(values))}" for arm, values in seeds.items()
    )
    ids = [run.spec.run_id for run in plan.runs if (run.spec.seed_of_base, run.spec.seed) in common]
    fix = f"mcpo compare {' '.join(ids)}" if ids else "train the seeds of one arm with the settings of the others"
    return ConfigError(f"the arms on {model} have different seeds, {listed}", fix=fix, code="nothing_pairs")


def check_failed(data: Runs, baseline: str) -> None:
    """Raise McpoError where failures leave an arm without a pair to compare."""
    scored = _pairs(data.planned)
    for model, arm in _pairs(data.plan.runs) if data.failed else ():
        if not scored.get((model, arm), set()) & scored.get((model, baseline), set()):
            errors = "; ".join(
                f"{failure.planned.arm}, {failure.planned.spec.run_id}: {failure.error}" for failure in data.failed
            )
            raise McpoError(
                f"{data.plan.suite}: no seed has a completed run of both {arm} and {baseline} on {model}, as runs "
                f"failed: {errors}",
                fix=f"compare the other arms alone, or continue the runs: {data.plan.command}",
            )


def _pairs(runs: Sequence[PlannedRun]) -> dict[tuple[str, str], set[Pair]]:
    """The pairs of each model and arm."""
    pairs: dict[tuple[str, str], set[Pair]] = {}
    for run in runs:
        pairs.setdefault((run.spec.model.name, run.arm), set()).add((run.spec.seed_of_base, run.spec.seed))
    return pairs
