"""Functions from a run to its numbers: those that `measures.py` names, and others for single tables.

A function gives one number per run, or one per run and part (tier, third of training).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

import numpy as np
import pandas as pd

from mcpo_cli import measures
from mcpo_cli.analysis.comparison import K
from mcpo_cli.analysis.equal_cost import AVERAGE, AXES, at_equal
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.config.plan import PlannedRun
from mcpo_cli.measures import mastery
from mcpo_cli.measures.base import Finding
from mcpo_cli.statistics import curves, stats
from mcpo_cli.statistics.stats import Floats

WHOLE = ""
"""Key of a number that describes the whole run."""
Numbers = Mapping[str, float]
"""Numbers of one run by part (tier, third of training, ...) or under WHOLE; undetermined ones are left out."""
Measure = Callable[[Runs, PlannedRun], Numbers]
EDGE = 1e-9
"""Keeps p = 1/3 and p = 2/3 out of the ends: they belong to the middle."""
MASTERED = "mastery/mastered"
THIRDS = ("first third", "second third", "last third")


def unless_nan(value: float) -> Numbers:
    """The number of a run; left out if it is NaN."""
    return {} if math.isnan(value) else {WHOLE: value}


def ends(values: Sequence[float] | Floats) -> tuple[float, float]:
    """Means of the first and the last fifth of the values, of one at least; NaN without values."""
    fifth = max(1, len(values) // 5)
    return (fmean(values[:fifth]), fmean(values[-fifth:])) if len(values) else (math.nan, math.nan)


def rise(values: Floats) -> float:
    """The last fifth minus the first."""
    return float(np.diff(ends(values)).item())


def kept(values: Floats) -> float:
    """The last fifth as a share of the first."""
    first, last = ends(values)
    return last / first


def end(values: Floats) -> float:
    """Mean of the last fifth."""
    return ends(values)[1]


def scores(k: int, *, at_start: bool = False) -> Measure:
    """best@k of each tier after the last step, or of the base policy; best@1 equals pass@1."""

    def measure(runs: Runs, cell: PlannedRun) -> Numbers:
        step = 0 if at_start else cell.spec.train.steps
        counts: dict[str, tuple[list[int], list[int]]] = {}
        for row in runs.journal(cell).eval():
            if row["step"] == step and row["n"]:
                n_Q, c_Q = counts.setdefault(row["tier"], ([], []))
                n_Q.append(row["n"])
                c_Q.append(row["c"])
        return {tier: float(stats.best_at_k(*pair, k).mean()) for tier, pair in counts.items()}

    return measure


def of_tiers(by_tier: Measure, number: Callable[[Sequence[float]], float]) -> Measure:
    """A number made of those of the tiers."""

    def measure(runs: Runs, cell: PlannedRun) -> Numbers:
        tiers = list(by_tier(runs, cell).values())
        return {WHOLE: number(tiers)} if tiers else {}

    return measure


def minus(mine: Measure, other: Measure) -> Measure:
    """The difference of two numbers of one run."""

    def measure(runs: Runs, cell: PlannedRun) -> Numbers:
        first, second = mine(runs, cell), other(runs, cell)
        return {WHOLE: first[WHOLE] - second[WHOLE]} if first and second else {}

    return measure


pass_at_1, best_at_8 = of_tiers(scores(1), fmean), of_tiers(scores(K), fmean)
gained = minus(pass_at_1, of_tiers(scores(1, at_start=True), fmean))
"""pass@1 after the last step minus that of the base policy, mean over the tiers."""


def at_equal_cost(at: str) -> Measure:
    """pass@1 where `mcpo compare --at` compares: at the largest cost that all runs of the model reach.

    A run that did not record its cost, as in an older version, has no number.
    """

    def table(runs: Runs) -> "pd.Series[float] | None":
        scores = runs.scores(1)
        if scores[AXES[at]].isna().any():
            return None
        return at_equal(scores, AXES[at], ["pass@1"])["pass@1"].xs(AVERAGE, level="tier")

    def measure(runs: Runs, cell: PlannedRun) -> Numbers:
        spec, scores = cell.spec, runs.once(("at equal", at), lambda: table(runs))
        return {} if scores is None else {WHOLE: float(scores[spec.model.name, cell.arm, spec.seed_of_base, spec.seed])}

    return measure


def _series(runs: Runs, cell: PlannedRun, names: Sequence[str], probe: str = "") -> Floats:
    """The sum of metrics, or of columns of the probe's table `steps`, at each step that has all of them."""
    rows: Iterable[Mapping[str, float]] = (row["metrics"] for row in runs.journal(cell).steps())
    if probe:
        lacks = measures.get(probe).lacks(runs.journal(cell))
        rows = () if lacks else runs.finding(probe, cell).tables.get("steps", ())
    return np.array([sum(row[name] for name in names) for row in rows if all(name in row for name in names)])


def of_steps(number: Callable[[Floats], float], *names: str, probe: str = "") -> Measure:
    """A number made of a series (see `_series`); left out where no step has it."""

    def measure(runs: Runs, cell: PlannedRun) -> Numbers:
        values = _series(runs, cell, names, probe)
        return {WHOLE: float(number(values))} if values.size else {}

    return measure


def thirds(name: str) -> Measure:
    """Mean of a metric over each third of the steps."""

    def measure(runs: Runs, cell: PlannedRun) -> Numbers:
        parts = np.array_split(_series(runs, cell, [name]), len(THIRDS))
        return {third: float(part.mean()) for third, part in zip(THIRDS, parts, strict=True) if part.size}

    return measure


def rises(runs: Runs, cell: PlannedRun) -> Numbers:
    means = thirds(MASTERED)(runs, cell)
    return {f"{after} minus {before}": means[after] - means[before] for before, after in pairwise(means)}


def of_probe(probe: str, number: str | Callable[[Finding], float]) -> Measure:
    """A number taken from a probe's result, or one of its values; left out if the run lacks the records."""

    def measure(runs: Runs, cell: PlannedRun) -> Numbers:
        if measures.get(probe).lacks(runs.journal(cell)):
            return {}
        finding = runs.finding(probe, cell)
        return unless_nan(finding.values.get(number, math.nan) if isinstance(number, str) else number(finding))

    return measure


def drift_share(finding: Finding) -> float:
    gap, accuracy = (finding.values.get(name, math.nan) for name in ("gap_lag_1", "accuracy_lag_1"))
    return gap / (1 - accuracy) if accuracy != 1 else math.nan


def bimodality(runs: Runs, cell: PlannedRun) -> Numbers:
    rows = runs.finding("histogram", cell).tables["bins"]
    prompts: int = sum(row["prompts"] for row in rows)

    def density(low: float, high: float) -> float:
        here: list[int] = [row["prompts"] for row in rows if low <= row["p"] <= high]
        return fmean(here) * len(rows) / prompts

    low, middle, high = density(0, 1 / 3 - EDGE), density(1 / 3, 2 / 3), density(2 / 3 + EDGE, 1)
    return {"low end": low - middle, "high end": high - middle}


def promoted(finding: Finding) -> float:
    rows = [row for row in finding.tables.get("transitions", ()) if row["before"] == "majority_correct"]
    return float(rows[0]["mastered"]) if rows and rows[0]["pairs"] else math.nan


def weight(finding: Finding, low: float, high: float) -> float:
    """Mean measured weight of the prompts with low < p <= high."""
    curve = finding.tables["curve"]
    rows = [row for row in curve if low < row["p"] <= high and row["prompts"] and "measured" in row]
    prompts = sum(row["prompts"] for row in rows)
    return sum(row["measured"] * row["prompts"] for row in rows) / prompts if rows else math.nan


def of_cohorts(number: Callable[[Sequence[Floats]], float]) -> Measure:
    """A number of cohorts of mastered prompts: accuracies under the same and the next policy, prompts x 2 per step."""

    def measure(runs: Runs, cell: PlannedRun) -> Numbers:
        return unless_nan(number([*mastery.cohorts(runs.journal(cell).rerolls(), 1).values()]))

    return measure


def gap(cohort_TC2: Sequence[Floats]) -> float:
    """Same-policy minus next-step accuracy, mean over cohorts."""
    return fmean([float(np.subtract(*cohort_C2.T).mean()) for cohort_C2 in cohort_TC2]) if cohort_TC2 else math.nan


def deepest(cohort_TC2: Sequence[Floats]) -> float:
    """`curves.deepest` of the gap."""
    return curves.deepest([np.subtract(*cohort_C2.T) for cohort_C2 in cohort_TC2])


def swings(cohort_TC2: Sequence[Floats]) -> float:
    """`curves.swings` of next-step accuracy."""
    return curves.swings([cohort_C2[:, 1] for cohort_C2 in cohort_TC2])


def early_swings(cohort_TC2: Sequence[Floats]) -> float:
    third = len(cohort_TC2) // 3
    return swings(cohort_TC2[:third]) - swings(cohort_TC2[third:])
