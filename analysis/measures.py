"""The statistics that claims are tested on: each computes one number per run, or one per run and tier."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np

from mcpo_cli import probes
from mcpo_cli.analysis.comparison import K
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.config.plan import Cell
from mcpo_cli.probes import mastery
from mcpo_cli.probes.base import Finding
from mcpo_cli.statistics import cohorts, stats
from mcpo_cli.statistics.stats import Floats

WHOLE = ""
"""Key of a number that describes the whole run."""
Numbers = Mapping[str, float]
"""Numbers of one run by part (tier, third of training, ...) or under WHOLE; undetermined ones are left out."""
EDGE = 1e-9
"""Keeps p = 1/3 and p = 2/3 out of the ends: they belong to the middle."""
THIRDS = ("first third", "second third", "last third")


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


def of_probe(probe: str, name: str) -> Callable[[Runs, Cell], Numbers]:
    """One of a probe's values; left out as by `_of`."""
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


def _thirds(name: str) -> Callable[[Runs, Cell], Numbers]:
    """Mean of a column of the probe `composition` over each third of the steps."""

    def measure(runs: Runs, cell: Cell) -> Numbers:
        parts = np.array_split(_series(runs.finding("composition", cell), name), len(THIRDS))
        return {third: float(part.mean()) for third, part in zip(THIRDS, parts, strict=True) if part.size}

    return measure


def _rises(runs: Runs, cell: Cell) -> Numbers:
    means = _thirds("mastered")(runs, cell)
    return {f"{after} minus {before}": means[after] - means[before] for before, after in pairwise(means)}


def _cohorts(number: Callable[[Sequence[Floats]], float]) -> Callable[[Runs, Cell], Numbers]:
    """A number computed from the accuracies of all cohorts under the same and the next policy (prompts x 2 a step)."""

    def measure(runs: Runs, cell: Cell) -> Numbers:
        value = number([*mastery.cohorts(runs.journal(cell).rerolls(), 1).values()])
        return {} if math.isnan(value) else {WHOLE: value}

    return measure


def _gap(cohort_TC2: Sequence[Floats]) -> float:
    return fmean([float(np.subtract(*cohort_C2.T).mean()) for cohort_C2 in cohort_TC2]) if cohort_TC2 else math.nan


def _deepest(cohort_TC2: Sequence[Floats]) -> float:
    return cohorts.deepest([np.subtract(*cohort_C2.T) for cohort_C2 in cohort_TC2])


def _swings(cohort_TC2: Sequence[Floats]) -> float:
    return cohorts.swings([cohort_C2[:, 1] for cohort_C2 in cohort_TC2])


def _early_swings(cohort_TC2: Sequence[Floats]) -> float:
    third = len(cohort_TC2) // 3
    return _swings(cohort_TC2[:third]) - _swings(cohort_TC2[third:])


def _kept(finding: Finding) -> float:
    first, last = _ends(_series(finding, "entropy"))
    return last / first


def _drift_share(finding: Finding) -> float:
    gap, accuracy = (finding.values.get(name, math.nan) for name in ("gap_lag_1", "accuracy_lag_1"))
    return gap / (1 - accuracy) if accuracy != 1 else math.nan


def _bimodality(runs: Runs, cell: Cell) -> Numbers:
    rows = runs.finding("histogram", cell).tables["bins"]
    prompts: int = sum(row["prompts"] for row in rows)

    def density(low: float, high: float) -> float:
        here: list[int] = [row["prompts"] for row in rows if low <= row["p"] <= high]
        return fmean(here) * len(rows) / prompts

    low, middle, high = density(0, 1 / 3 - EDGE), density(1 / 3, 2 / 3), density(2 / 3 + EDGE, 1)
    return {"low end": low - middle, "high end": high - middle}


def _promoted(finding: Finding) -> float:
    rows = [row for row in finding.tables.get("transitions", ()) if row["before"] == "majority_correct"]
    return float(rows[0]["mastered"]) if rows and rows[0]["pairs"] else math.nan


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
    "mastered share by third": Statistic("share of sampled prompts with p = 1", _thirds("mastered")),
    "mastered share's rise by third": Statistic(
        "share of sampled prompts with p = 1 in a third of training minus that in the third before", _rises
    ),
    "mastered share in the end": Statistic(
        "share of sampled prompts with p = 1, mean over the last fifth of the steps",
        _of("composition", lambda finding: _ends(_series(finding, "mastered"))[1]),
    ),
    "all-wrong share by third": Statistic("share of sampled prompts with p = 0", _thirds("all_wrong")),
    "next-step accuracy": Statistic(
        "accuracy of mastered prompts rolled again under the next step's policy", of_probe("mastery", "accuracy_lag_1")
    ),
    "same-policy accuracy": Statistic(
        "accuracy of mastered prompts rolled again under the same policy", of_probe("mastery", "same_policy")
    ),
    "next-step gap": Statistic(
        "same-policy minus next-step accuracy of mastered prompts, mean over their steps; each step counts once",
        _cohorts(_gap),
    ),
    "deepest next-step gap": Statistic(
        "next-step gap in the fifth of training where it is largest; half of the prompts pick that fifth, the other "
        "half measure it, so that small cohorts do not look deeper",
        _cohorts(_deepest),
    ),
    "next-step swings": Statistic(
        "mean squared change of next-step accuracy from step to step, minus the sampling variance of the cohorts",
        _cohorts(_swings),
    ),
    "early minus later swings": Statistic(
        "next-step swings in the first third of the steps minus those in the rest", _cohorts(_early_swings)
    ),
    "drift's share of the drop": Statistic(
        "next-step gap as a share of 1 minus next-step accuracy, each prompt counted once a step",
        _of("mastery", _drift_share),
    ),
    "entropy rise": Statistic(
        "mean entropy (nats) of the last fifth of the steps minus the first", _of("entropy", _rise)
    ),
    "entropy kept": Statistic(
        "mean entropy of the last fifth of the steps as a share of that of the first", _of("entropy", _kept)
    ),
    "accuracies at the ends": Statistic(
        "frequency of an accuracy p = k/G below 1/3 (low end) and above 2/3 (high end) minus that of one between, as a "
        "multiple of the frequency if all were equally frequent",
        _bimodality,
    ),
    "majority to mastered": Statistic(
        "share of the panel's prompts with .5 < p < 1 that are mastered at the next roll",
        _of("transitions", _promoted),
    ),
    "weight lost towards mastery": Statistic(
        "measured query weight of prompts with .5 < p <= .75 minus that of .75 < p < 1",
        _of("weights", lambda finding: _weight(finding, 0.5, 0.75) - _weight(finding, 0.75, 1)),
    ),
    "weight of majority-correct prompts": Statistic(
        "measured query weight of prompts with .5 < p < 1", _of("weights", lambda finding: _weight(finding, 0.5, 1))
    ),
}
