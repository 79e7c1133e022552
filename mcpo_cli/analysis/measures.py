"""Statistics of one run by name: what claims are tested on, and the league, maps and the table `forgetting` show.

A statistic gives one number per run, or one per run and part (tier, third of training).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import numpy as np
import pandas as pd

from mcpo_cli import probes
from mcpo_cli.analysis.comparison import K
from mcpo_cli.analysis.equal_cost import AVERAGE, AXES, at_equal
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.config.plan import PlannedRun
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.probes import mastery
from mcpo_cli.probes.base import Finding
from mcpo_cli.statistics import curves, stats
from mcpo_cli.statistics.stats import Floats

WHOLE = ""
"""Key of a number that describes the whole run."""
Numbers = Mapping[str, float]
"""Numbers of one run by part (tier, third of training, ...) or under WHOLE; undetermined ones are left out."""
Measure = Callable[[Runs, PlannedRun], Numbers]
EDGE = 1e-9
"""Keeps p = 1/3 and p = 2/3 out of the ends: they belong to the middle."""
THIRDS = ("first third", "second third", "last third")
HIGH_DRIFT = 3e-3
"""Least high drift, as registered in `preregistration.yaml`: about the median of the suite `map`."""


@dataclass(frozen=True)
class Statistic:
    """A number computed from one run."""

    meaning: str
    measure: Measure


def _whole(value: float) -> Numbers:
    """The number of a run; left out if it is NaN."""
    return {} if math.isnan(value) else {WHOLE: value}


def ends(values: Sequence[float] | Floats) -> tuple[float, float]:
    """Means of the first and the last fifth of the values, of one at least; NaN without values."""
    fifth = max(1, len(values) // 5)
    return (fmean(values[:fifth]), fmean(values[-fifth:])) if len(values) else (math.nan, math.nan)


def _rise(values: Floats) -> float:
    return float(np.diff(ends(values)).item())


def _kept(values: Floats) -> float:
    first, last = ends(values)
    return last / first


def _end(values: Floats) -> float:
    return ends(values)[1]


def scores(k: int) -> Measure:
    """best@k of each tier after the last step; best@1 equals pass@1."""

    def measure(runs: Runs, cell: PlannedRun) -> Numbers:
        counts: dict[str, tuple[list[int], list[int]]] = {}
        for row in runs.journal(cell).eval():
            if row["step"] == cell.spec.train.steps and row["n"]:
                n_Q, c_Q = counts.setdefault(row["tier"], ([], []))
                n_Q.append(row["n"])
                c_Q.append(row["c"])
        return {tier: float(stats.best_at_k(*pair, k).mean()) for tier, pair in counts.items()}

    return measure


def _of_tiers(k: int, number: Callable[[Sequence[float]], float]) -> Measure:
    """A number made of the tiers' best@k."""
    by_tier = scores(k)

    def measure(runs: Runs, cell: PlannedRun) -> Numbers:
        tiers = list(by_tier(runs, cell).values())
        return {WHOLE: number(tiers)} if tiers else {}

    return measure


pass_at_1, best_at_8 = _of_tiers(1, fmean), _of_tiers(K, fmean)


def _more_samples(runs: Runs, cell: PlannedRun) -> Numbers:
    one, best = pass_at_1(runs, cell), best_at_8(runs, cell)
    return {WHOLE: best[WHOLE] - one[WHOLE]} if one and best else {}


def gained(runs: Runs, cell: PlannedRun) -> Numbers:
    """pass@1 after the last step minus that of the base policy, mean over the tiers."""
    counts: dict[int, dict[str, list[float]]] = {0: {}, cell.spec.train.steps: {}}
    for row in runs.journal(cell).eval():
        if row["n"] and row["step"] in counts:
            counts[row["step"]].setdefault(row["tier"], []).append(row["c"] / row["n"])
    first, last = (fmean(map(fmean, tiers.values())) if tiers else math.nan for tiers in counts.values())
    return _whole(last - first)


def _at_equal(at: str) -> Measure:
    """pass@1 where `mcpo compare --at` compares: at the largest cost that all runs of the model reach.

    No number where a run did not record its cost, as of an older version.
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
        lacks = probes.get(probe).lacks(runs.journal(cell))
        rows = () if lacks else runs.finding(probe, cell).tables.get("steps", ())
    return np.array([sum(row[name] for name in names) for row in rows if all(name in row for name in names)])


def _of_steps(number: Callable[[Floats], float], *names: str, probe: str = "") -> Measure:
    """A number made of a series (see `_series`); left out where no step has it."""

    def measure(runs: Runs, cell: PlannedRun) -> Numbers:
        values = _series(runs, cell, names, probe)
        return {WHOLE: float(number(values))} if values.size else {}

    return measure


def _thirds(name: str) -> Measure:
    """Mean of a metric over each third of the steps."""

    def measure(runs: Runs, cell: PlannedRun) -> Numbers:
        parts = np.array_split(_series(runs, cell, [name]), len(THIRDS))
        return {third: float(part.mean()) for third, part in zip(THIRDS, parts, strict=True) if part.size}

    return measure


def _rises(runs: Runs, cell: PlannedRun) -> Numbers:
    means = _thirds(MASTERED)(runs, cell)
    return {f"{after} minus {before}": means[after] - means[before] for before, after in pairwise(means)}


def of_probe(probe: str, number: str | Callable[[Finding], float]) -> Measure:
    """A number taken from a probe's result, or one of its values; left out if the run lacks the records."""

    def measure(runs: Runs, cell: PlannedRun) -> Numbers:
        if probes.get(probe).lacks(runs.journal(cell)):
            return {}
        finding = runs.finding(probe, cell)
        return _whole(finding.values.get(number, math.nan) if isinstance(number, str) else number(finding))

    return measure


def _drift_share(finding: Finding) -> float:
    gap, accuracy = (finding.values.get(name, math.nan) for name in ("gap_lag_1", "accuracy_lag_1"))
    return gap / (1 - accuracy) if accuracy != 1 else math.nan


def _bimodality(runs: Runs, cell: PlannedRun) -> Numbers:
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
    curve = finding.tables["curve"]
    rows = [row for row in curve if low < row["p"] <= high and row["prompts"] and "measured" in row]
    prompts = sum(row["prompts"] for row in rows)
    return sum(row["measured"] * row["prompts"] for row in rows) / prompts if rows else math.nan


def _of_cohorts(number: Callable[[Sequence[Floats]], float]) -> Measure:
    """A number of cohorts of mastered prompts: accuracies under the same and the next policy, prompts x 2 per step."""

    def measure(runs: Runs, cell: PlannedRun) -> Numbers:
        return _whole(number([*mastery.cohorts(runs.journal(cell).rerolls(), 1).values()]))

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


def _early_swings(cohort_TC2: Sequence[Floats]) -> float:
    third = len(cohort_TC2) // 3
    return swings(cohort_TC2[:third]) - swings(cohort_TC2[third:])


def drift(spec: RunSpec) -> float:
    """Learning rate times the mini-batches of a global step but the first.

    It grows with the distance from the policy that sampled to the one that the last mini-batch trains.
    """
    return spec.train.lr * (_mini_batches(spec) - 1)


def _mini_batches(spec: RunSpec) -> int:
    return math.ceil(spec.train.prompts / spec.train.mini_batch)


def _is_driven(spec: RunSpec) -> bool:
    """Whether problems return within the run and its drift is high."""
    returns = 0 < spec.task.distinct_problems < spec.train.prompts * spec.train.steps
    return returns and drift(spec) >= HIGH_DRIFT


def _where(condition: Callable[[RunSpec], bool], measure: Measure) -> Measure:
    """The numbers of the runs whose settings meet the condition."""
    return lambda runs, cell: measure(runs, cell) if condition(cell.spec) else {}


def _near_mastery(runs: Runs, cell: PlannedRun) -> Numbers:
    share = fmean(0.75 < row["p"] < 1 for row in runs.journal(cell).rows("groups"))
    return {WHOLE: share * math.sqrt(cell.spec.train.rollouts)}


MASTERED, ALL_WRONG, LENGTH = "mastery/mastered", "mastery/all_wrong", "train/response_length"
DEAD = (MASTERED, ALL_WRONG)
_DECLARED: Mapping[str, tuple[str, Measure]] = {
    "pass@1": ("pass@1 after the last step, mean over the tiers", pass_at_1),
    "pass@1 by tier": ("pass@1 after the last step", scores(1)),
    "best@8": ("best@8, the paper's pass@8, after the last step, mean over the tiers", best_at_8),
    "best@8 by tier": ("best@8, the paper's pass@8, after the last step", scores(K)),
    "mastered share by third": ("share of sampled prompts with p = 1", _thirds(MASTERED)),
    "mastered share's rise by third": ("share of sampled prompts with p = 1 minus that in the third before", _rises),
    "mastered share in the end": (
        "share of sampled prompts with p = 1, mean over the last fifth of the steps",
        _of_steps(_end, MASTERED),
    ),
    "all-wrong share by third": ("share of sampled prompts with p = 0", _thirds(ALL_WRONG)),
    "next-step accuracy": (
        "accuracy of mastered prompts resampled under the next step's policy",
        of_probe("mastery", "accuracy_lag_1"),
    ),
    "same-policy accuracy": (
        "accuracy of mastered prompts resampled under the same policy",
        of_probe("mastery", "same_policy"),
    ),
    "next-step gap": (
        "same-policy minus next-step accuracy of mastered prompts, mean over their steps; each step counts once",
        _of_cohorts(gap),
    ),
    "deepest next-step gap": (
        "next-step gap in the fifth of training where it is largest; half of the prompts select that fifth, the other "
        "half measure it, so that small cohorts do not look deeper",
        _of_cohorts(deepest),
    ),
    "next-step swings": (
        "mean squared change of next-step accuracy from step to step, minus the sampling variance of the cohorts",
        _of_cohorts(swings),
    ),
    "early minus later swings": (
        "next-step swings in the first third of the steps minus those in the rest",
        _of_cohorts(_early_swings),
    ),
    "drift's share of the drop": (
        "next-step gap as a share of 1 minus next-step accuracy, each prompt counted once per step",
        of_probe("mastery", _drift_share),
    ),
    "entropy rise": (
        "mean entropy (nats) of the last fifth of the steps minus the first",
        _of_steps(_rise, "entropy", probe="entropy"),
    ),
    "entropy kept": (
        "mean entropy of the last fifth of the steps as a share of that of the first",
        _of_steps(_kept, "entropy", probe="entropy"),
    ),
    "accuracies at the ends": (
        "frequency of an accuracy p = k/G below 1/3 (low end) and above 2/3 (high end) minus that of one between, as a "
        "multiple of the frequency if all were equally frequent",
        _bimodality,
    ),
    "majority to mastered": (
        "share of the panel's prompts with .5 < p < 1 that are mastered at the next resampling",
        of_probe("transitions", _promoted),
    ),
    "weight lost towards mastery": (
        "measured query weight of prompts with .5 < p <= .75 minus that of .75 < p < 1",
        of_probe("weights", lambda finding: _weight(finding, 0.5, 0.75) - _weight(finding, 0.75, 1)),
    ),
    "weight of majority-correct prompts": (
        "measured query weight of prompts with .5 < p < 1",
        of_probe("weights", lambda finding: _weight(finding, 0.5, 1)),
    ),
    "zero-variance share": ("share of sampled prompts with p = 0 or p = 1, mean over steps", _of_steps(np.mean, *DEAD)),
    "least zero-variance share": ("the same at the step where it is least", _of_steps(np.min, *DEAD)),
    "largest zero-variance share": ("the same at the step where it is largest", _of_steps(np.max, *DEAD)),
    "all-wrong share in the end": (
        "share of sampled prompts with p = 0, mean over the last fifth of the steps",
        _of_steps(_end, ALL_WRONG),
    ),
    "pass@1 of the hardest tier": ("pass@1 after the last step, last tier", _of_tiers(1, lambda tiers: tiers[-1])),
    "pass@1 at equal steps": (
        "pass@1 after as many global steps as all runs of the model have, mean over the tiers",
        _at_equal("steps"),
    ),
    "pass@1 at equal rollouts": (
        "pass@1 after as many sampled rollouts as all runs of the model reach, mean over the tiers, linear between "
        "evaluations",
        _at_equal("rollouts"),
    ),
    "pass@1 gained": ("pass@1 after the last step minus the base policy's, mean over the tiers", gained),
    "best@8 over pass@1": ("best@8 minus pass@1 after the last step, mean over the tiers", _more_samples),
    "flipped advantages": (
        "share of rollouts that are correct and have an advantage below 0, or incorrect and above 0, mean over steps",
        _of_steps(np.mean, "advantage/flipped"),
    ),
    "zero advantages": (
        "share of rollouts with zero advantage, mean over steps",
        _of_steps(np.mean, "advantage/zero"),
    ),
    "clipped share": (
        "share of tokens with an advantage (of sequences, where the method clips sequences) that lose their gradient "
        "by clipping, mean over steps",
        _of_steps(np.mean, "train/clip_high", "train/clip_low"),
    ),
    "rise of length": (
        "mean length of responses, tokens, in the last fifth of the steps minus that in the first",
        _of_steps(_rise, LENGTH),
    ),
    "length in the end": (
        "mean length of responses, tokens, over the last fifth of the steps",
        _of_steps(_end, LENGTH),
    ),
    "rise of wrong answers' length": (
        "mean length of incorrect responses, tokens, in the last fifth of the steps minus that in the first",
        _of_steps(_rise, "train/wrong_length"),
    ),
    "drift": (
        "learning rate times the mini-batches of a global step but the first",
        lambda runs, cell: {WHOLE: drift(cell.spec)},
    ),
    "share near mastery times root of G": (
        "share of sampled prompts with .75 < p < 1, over all steps, times the square root of the rollouts per prompt",
        _near_mastery,
    ),
    "pass@1 where problems return and drift is high": (
        f"pass@1 after the last step, of runs whose problems return and whose drift is at least {HIGH_DRIFT:g}",
        _where(_is_driven, pass_at_1),
    ),
    "pass@1 where they do not": ("the same of all other runs", _where(lambda spec: not _is_driven(spec), pass_at_1)),
    "effective share of rollouts": (
        "Kish's effective number of rollouts of a batch over their number, mean over steps",
        of_probe("weights", "effective_share"),
    ),
    "next-step gap with two gradient steps": (
        "next-step gap of the runs with two mini-batches per global step",
        _where(lambda spec: _mini_batches(spec) == 2, _of_cohorts(gap)),
    ),
}
STATISTICS: Mapping[str, Statistic] = {name: Statistic(*about) for name, about in _DECLARED.items()}
