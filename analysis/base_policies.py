"""Scores before training: how far each arm ends from the policies that its runs started from, and which collapsed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from mcpo_cli.analysis.equal_cost import AVERAGE, by_run
from mcpo_cli.analysis.frames import PAIR
from mcpo_cli.config.plan import Cell
from mcpo_cli.statistics import stats
from mcpo_cli.statistics.stats import Effect

BEFORE = "before training"
"""In the place of an arm: the policies that its runs started from."""
COLLAPSED = 0.5
"""A run collapsed if its pass@1, averaged over tiers, ends below this share of its base policy's."""


@dataclass(frozen=True)
class Gain:
    """An arm's score, averaged over tiers, minus that of the base policies of its runs."""

    at: str
    """One of AXES."""
    model: str
    arm: str
    metric: str
    before: float
    """Mean score of the base policies."""
    effect: Effect
    """Paired by base policy and seed. Like the arm's score it holds for these base policies."""

    @property
    def loses(self) -> bool:
        """Whether the arm's mean ends below that of its base policies."""
        return self.effect.mean < -stats.ROUNDING

    @property
    def mark(self) -> str:
        """`<` where the mean ends below that before training, `<<` where the whole 95 % interval does."""
        if not self.loses:
            return ""
        return "<<" if self.effect.high < 0 else "<"


@dataclass(frozen=True)
class BasePolicies:
    """The base policies that some arms of a model share."""

    model: str
    arms: tuple[str, ...]
    name: str
    """BEFORE, with the arms where others of the model start from other policies."""
    scores: pd.DataFrame
    """Index: base_seed, seed, tier (AVERAGE included); one column a metric."""


def base_policies(scores: pd.DataFrame, cells: Sequence[Cell], metrics: Sequence[str]) -> list[BasePolicies]:
    """Scores of the base policies from the evaluations at step 0, by model and arms that share them.

    All arms of a pair evaluate one base policy. The local engine gives all of them the same samples; where samples
    differ, the mean over the arms is the better estimate. Seeds of one base policy keep their own evaluations, so that
    the sampling errors of different pairs stay independent.

    Args:
        scores: `Runs.scores`.
        cells: all runs of the plan.
    """
    used: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        used.setdefault((cell.spec.model.name, cell.arm), set()).add(cell.spec.base_id)
    sharing: dict[tuple[str, frozenset[str]], list[str]] = {}
    for (model, arm), ids in used.items():
        sharing.setdefault((model, frozenset(ids)), []).append(arm)
    several = {model for model, _ in sharing if sum(model == other for other, _ in sharing) > 1}
    start = scores[scores["step"] == 0]
    return [
        BasePolicies(
            model,
            tuple(arms),
            f"{BEFORE} ({', '.join(arms)})" if model in several else BEFORE,
            _with_average(start[(start["model"] == model) & start["arm"].isin(arms)], metrics),
        )
        for (model, _), arms in sharing.items()
    ]


def _with_average(start: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    tiers = start.groupby([*PAIR, "tier"], sort=False)[list(metrics)].mean().reset_index()
    means = tiers.groupby(PAIR, sort=False, as_index=False)[list(metrics)].mean().assign(tier=AVERAGE)
    return pd.concat([tiers, means], ignore_index=True).set_index([*PAIR, "tier"])


def gains(at: str, table: pd.DataFrame, bases: Sequence[BasePolicies]) -> Iterator[Gain]:
    """The gain of each arm in each metric. table: `equal_cost.at_equal` at the axis `at`."""
    for model, arm, metric, end, before in _ends(table, bases):
        yield Gain(at, model, arm, metric, float(before.mean()), stats.paired_t((end - before).tolist()))


def collapsed(table: pd.DataFrame, bases: Sequence[BasePolicies]) -> set[tuple[str, str, int, int]]:
    """Model, arm, base seed and seed of the runs that collapsed. table: `equal_cost.at_equal`."""
    return {
        (model, arm, int(base_seed), int(seed))
        for model, arm, metric, end, before in _ends(table, bases)
        if metric == "pass@1"
        for base_seed, seed in end[end < COLLAPSED * before].index.to_frame().itertuples(index=False)
    }


def _ends(
    table: pd.DataFrame, bases: Sequence[BasePolicies]
) -> Iterator[tuple[str, str, str, "pd.Series[float]", "pd.Series[float]"]]:
    """Model, arm, metric, and by pair the average over tiers at the end and before training."""
    started = {(one.model, arm): one.scores.xs(AVERAGE, level="tier") for one in bases for arm in one.arms}
    for model, arm, tier, metric, end in by_run(table):
        if tier == AVERAGE:
            yield model, arm, metric, end, started[model, arm][metric].reindex(end.index)


def compared(verdict: str, mine: Gain, baseline: Gain) -> str:
    """A difference in words that say whether the arms gain or lose over their base policies: `loses less than DAPO`.

    verdict: of the difference (`Difference.verdict`). mine: gain of the arm that is compared with `baseline`.
    """
    direction = verdict.partition(" ")[0]
    if direction == "open":
        return f"does not differ significantly from {baseline.arm}"
    if mine.loses != baseline.loses:
        does = ("loses", "gains") if mine.loses else ("gains", "loses")
        return f"{does[0]} where {baseline.arm} {does[1]}"
    more = (direction == "above") != mine.loses
    return f"{'loses' if mine.loses else 'gains'} {'more' if more else 'less'} than {baseline.arm}"
