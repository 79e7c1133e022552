"""Compares arms with a baseline: the numbers of a comparison table, before formatting."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd

from mcpo_cli.analysis.frames import Runs, Tree
from mcpo_cli.config.plan import Cell, Plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import McpoError
from mcpo_cli.statistics import stats
from mcpo_cli.statistics.stats import Effect, Floats, Interval

BOOTSTRAP_SEED = 2604
DRAWS = 10_000
K = 8
"""The paper's k; a comparison uses fewer if a problem has fewer graded samples."""


@dataclass(frozen=True)
class Score:
    """The mean of one metric over the seeds."""

    model: str
    arm: str
    tier: str
    metric: str
    seeds: Interval


@dataclass(frozen=True)
class Difference:
    """Arm minus baseline, paired by problem and seed."""

    model: str
    arm: str
    tier: str
    metric: str
    effect: Effect
    by_seed: tuple[float, ...]
    """Mean difference of each seed."""
    p_holm: float
    """p adjusted over all differences of the comparison."""

    @property
    def seeds(self) -> Interval:
        """The t-interval over the seeds."""
        return stats.t_interval(self.by_seed)

    @property
    def above(self) -> int:
        """Number of seeds with a positive difference, ignoring rounding errors."""
        return sum(value > 1e-12 for value in self.by_seed)


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
    scores: list[Score]
    differences: list[Difference]
    runs: list[Run]

    @property
    def tiers(self) -> list[str]:
        """The held-out tiers in evaluation order."""
        return list(self.sizes)

    def average(self, model: str, arm: str, metric: str) -> Interval:
        """t-interval over the seeds of arm minus baseline, averaged over the tiers."""
        by_tier = [one.by_seed for one in self.differences if (one.model, one.arm, one.metric) == (model, arm, metric)]
        return stats.t_interval(np.mean(by_tier, axis=0))

    def runs_of(self, model: str, *arms: str) -> list[Run]:
        """The runs of these arms on this model."""
        return [run for run in self.runs if run.model == model and run.arm in arms]


def compare(data: Runs, baseline: str) -> Comparison:
    """Score every arm and compare each with the arm `baseline`.

    Raises:
        McpoError: arms were evaluated with different seeds or problems.
    """
    plan = data.plan
    frame = data.eval()
    spec = plan.cells[0].spec
    k = min(K, int(frame["n"].min()))
    ungraded = len(frame) * spec.eval.samples - int(frame["n"].sum())
    metrics = _metrics(k)
    for name, metric in metrics.items():
        frame[name] = metric(frame["n"].to_numpy(), frame["c"].to_numpy())
    models, arms = (frame[column].unique().tolist() for column in ("model", "arm"))
    sizes = {str(tier): len(rows["problem"].unique()) for tier, rows in frame.groupby("tier", sort=False)}
    keys = [(model, arm, tier, metric) for model in models for arm in arms for metric in metrics for tier in sizes]
    tables = {key: _matrix(frame, *key) for key in keys}
    scores = [Score(*key, stats.t_interval(table.mean(axis=1).to_numpy())) for key, table in tables.items()]
    paired = {
        (model, arm, tier, metric): _difference(table, tables[model, baseline, tier, metric], plan)
        for (model, arm, tier, metric), table in tables.items()
        if arm != baseline
    }
    effects = [_bootstrap(diff_SQ) for diff_SQ in paired.values()]
    adjusted = stats.holm([effect.p for effect in effects])
    differences = [
        Difference(*key, effect, tuple(diff_SQ.mean(axis=1).tolist()), float(p_holm))
        for (key, diff_SQ), effect, p_holm in zip(paired.items(), effects, adjusted, strict=True)
    ]
    trees = data.trees()
    runs = [_run(cell, trees[cell.spec.run_id]) for cell in plan.cells]
    return Comparison(plan, baseline, spec, k, ungraded, models, arms, sizes, list(metrics), scores, differences, runs)


def _run(cell: Cell, tree: Tree) -> Run:
    spec = cell.spec
    return Run(spec.model.name, cell.arm, spec.seed_of_base, spec.seed, spec.run_id, tree)


def _metrics(k: int) -> Mapping[str, Callable[[Any, Any], Any]]:
    """Per-problem metrics of (n, c) by name."""
    return {
        "pass@1": functools.partial(stats.pass_at_k, k=1),
        f"best@{k}": functools.partial(stats.best_at_k, k=k),
        f"pass@{k}": functools.partial(stats.pass_at_k, k=k),
    }


def _matrix(frame: pd.DataFrame, model: str, arm: str, tier: str, metric: str) -> pd.DataFrame:
    """Seeds x problems of one metric."""
    rows = frame[(frame["model"] == model) & (frame["arm"] == arm) & (frame["tier"] == tier)]
    return rows.pivot(index=["base_seed", "seed"], columns="problem", values=metric)


def _difference(table: pd.DataFrame, baseline: pd.DataFrame, plan: Plan) -> Floats:
    same = table.index.equals(baseline.index) and table.columns.equals(baseline.columns)
    if not same or table.isna().to_numpy().any():
        runs = ", ".join(cell.spec.run_id for cell in plan.cells)
        fix = f"remove the runs that an older version trained from runs/, then: {plan.command}"
        raise McpoError(f"{plan.suite}: not all runs were evaluated with the same seeds and problems: {runs}", fix=fix)
    return cast(Floats, table.to_numpy() - baseline.to_numpy())


def _bootstrap(diff_SQ: Floats) -> Effect:
    return stats.bootstrapped(diff_SQ, _draws(*diff_SQ.shape))


@functools.cache
def _draws(seeds: int, problems: int) -> stats.Weights:
    # Tables of one shape share their draws: adding a tier or an arm changes no other number.
    return stats.resampled(seeds, problems, np.random.default_rng(BOOTSTRAP_SEED), DRAWS)
