"""The statistics that claims are tested on: each computes one number per run, or one per run and tier."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from mcpo_cli import probes
from mcpo_cli.analysis.comparison import K
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.config.plan import Cell
from mcpo_cli.probes.base import Finding
from mcpo_cli.statistics import stats

WHOLE = ""
"""Key of a number that describes the whole run."""
Numbers = Mapping[str, float]
"""Numbers of one run by tier or under WHOLE; undetermined ones are left out."""


@dataclass(frozen=True)
class Statistic:
    """A number computed from one run."""

    meaning: str
    """Description for readers of the table."""
    measure: Callable[[Runs, Cell], Numbers]


def _tiers(k: int) -> Callable[[Runs, Cell], Numbers]:
    """best@k of each tier after the last step; best@1 equals pass@1."""

    def measure(runs: Runs, cell: Cell) -> Numbers:
        counts: dict[str, tuple[list[int], list[int]]] = {}
        for row in runs.journal(cell).eval():
            if row["step"] == cell.spec.train.steps and row["n"]:
                n_Q, c_Q = counts.setdefault(row["tier"], ([], []))
                n_Q.append(row["n"])
                c_Q.append(row["c"])
        return {tier: float(stats.best_at_k(*pair, k).mean()) for tier, pair in counts.items()}

    return measure


def _average(k: int) -> Callable[[Runs, Cell], Numbers]:
    by_tier = _tiers(k)

    def measure(runs: Runs, cell: Cell) -> Numbers:
        tiers = by_tier(runs, cell)
        return {WHOLE: fmean(tiers.values())} if tiers else {}

    return measure


def _of(probe: str, number: Callable[[Finding], float]) -> Callable[[Runs, Cell], Numbers]:
    """A number taken from a probe's result; left out if the run lacks the records or the number is NaN."""

    def measure(runs: Runs, cell: Cell) -> Numbers:
        if probes.get(probe).lacks(runs.journal(cell)):
            return {}
        value = number(runs.finding(probe, cell))
        return {} if math.isnan(value) else {WHOLE: value}

    return measure


def _value(probe: str, name: str) -> Callable[[Runs, Cell], Numbers]:
    return _of(probe, lambda finding: finding.values.get(name, math.nan))


def _series(finding: Finding, name: str) -> list[float]:
    """The values of one column of the probe's table `steps`."""
    return [row[name] for row in finding.tables.get("steps", ()) if name in row]


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Means of the first and the last fifth of the values."""
    fifth = max(1, len(values) // 5)
    return (fmean(values[:fifth]), fmean(values[-fifth:])) if values else (math.nan, math.nan)


def _rise(finding: Finding) -> float:
    first, last = _ends(_series(finding, "entropy"))
    return last - first


def _floor(finding: Finding) -> float:
    return min(_series(finding, "accuracy_lag_1"), default=math.nan)


def _swings(finding: Finding) -> float:
    """Root mean square change from step to step; a trend inflates it less than it does a standard deviation."""
    values = _series(finding, "accuracy_lag_1")
    changes = [(after - before) ** 2 for before, after in pairwise(values)]
    return math.sqrt(fmean(changes)) if changes else math.nan


def _drift_share(finding: Finding) -> float:
    gap, accuracy = (finding.values.get(name, math.nan) for name in ("gap_lag_1", "accuracy_lag_1"))
    return gap / (1 - accuracy) if accuracy != 1 else math.nan


def _middling(finding: Finding) -> float:
    middle = [1 / 3 <= row["p"] <= 2 / 3 for row in finding.tables["bins"]]
    return finding.values.get("middle", math.nan) / fmean(middle)


def _weight(finding: Finding, low: float, high: float) -> float:
    """Mean measured weight of the prompts with low < p <= high."""
    rows: list[Mapping[str, Any]] = [
        row for row in finding.tables["curve"] if low < row["p"] <= high and row["prompts"] and "measured" in row
    ]
    prompts = sum(row["prompts"] for row in rows)
    return sum(row["measured"] * row["prompts"] for row in rows) / prompts if rows else math.nan


STATISTICS: Mapping[str, Statistic] = {
    "pass@1": Statistic("pass@1 after the last step, mean over the tiers", _average(1)),
    "pass@1 by tier": Statistic("pass@1 after the last step", _tiers(1)),
    "best@8": Statistic("best@8, the paper's pass@8, after the last step, mean over the tiers", _average(K)),
    "best@8 by tier": Statistic("best@8, the paper's pass@8, after the last step", _tiers(K)),
    "mastered share": Statistic(
        "share of sampled prompts with p = 1, mean over steps", _value("composition", "mastered")
    ),
    "mastered share in the end": Statistic(
        "share of sampled prompts with p = 1, mean over the last fifth of the steps",
        _of("composition", lambda finding: _ends(_series(finding, "mastered"))[1]),
    ),
    "all-wrong share": Statistic(
        "share of sampled prompts with p = 0, mean over steps", _value("composition", "all_wrong")
    ),
    "next-step accuracy": Statistic(
        "accuracy of mastered prompts rolled again under the next step's policy", _value("mastery", "accuracy_lag_1")
    ),
    "same-policy accuracy": Statistic(
        "accuracy of mastered prompts rolled again under the same policy", _value("mastery", "same_policy")
    ),
    "next-step gap": Statistic("same-policy accuracy minus next-step accuracy", _value("mastery", "gap_lag_1")),
    "next-step floor": Statistic("lowest next-step accuracy of a step's mastered prompts", _of("mastery", _floor)),
    "next-step swings": Statistic(
        "root mean square change of next-step accuracy from step to step", _of("mastery", _swings)
    ),
    "drift's share of the drop": Statistic(
        "next-step gap as a share of 1 minus next-step accuracy", _of("mastery", _drift_share)
    ),
    "entropy rise": Statistic(
        "mean entropy (nats) of the last fifth of the steps minus the first", _of("entropy", _rise)
    ),
    "middling prompts": Statistic(
        "share of sampled prompts with 1/3 <= p <= 2/3, divided by that share if all p = k/G were equally frequent",
        _of("histogram", _middling),
    ),
    "weight lost towards mastery": Statistic(
        "measured query weight of prompts with .5 < p <= .75 minus that of .75 < p < 1",
        _of("weights", lambda finding: _weight(finding, 0.5, 0.75) - _weight(finding, 0.75, 1)),
    ),
    "weight of majority-correct prompts": Statistic(
        "measured query weight of prompts with .5 < p < 1", _of("weights", lambda finding: _weight(finding, 0.5, 1))
    ),
}
