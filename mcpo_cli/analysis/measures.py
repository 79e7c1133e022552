"""The statistics of a run by name, for claims, the league and tables of outcomes.

Tables have rows of them: per run, and per arm as means over seeds with paired differences to a baseline.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mcpo_cli.analysis import render
from mcpo_cli.analysis import run_numbers as numbers
from mcpo_cli.analysis.comparison import K, Row
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.render import Grid
from mcpo_cli.analysis.run_numbers import MASTERED, WHOLE, Measure, Numbers
from mcpo_cli.config.plan import PlannedRun
from mcpo_cli.statistics import stats


@dataclass(frozen=True)
class Statistic:
    """A number computed from one run."""

    meaning: str
    measure: Measure


def _statistic(name: str, meaning: str, measure: Measure) -> Statistic:
    """A statistic that is measured once per run, for all claims and tables of the same runs."""

    def measured(runs: Runs, cell: PlannedRun) -> Numbers:
        return runs.once(("statistic", name, cell.arm, cell.spec.run_id), lambda: measure(runs, cell))

    return Statistic(meaning, measured)


DIGITS = 4
"""Decimals in a grid of rows."""
ALL_WRONG, LENGTH = "mastery/all_wrong", "train/response_length"
DEAD = (MASTERED, ALL_WRONG)
_DECLARED: Mapping[str, tuple[str, Measure]] = {
    "pass@1": ("pass@1 after the last step, mean over the tiers", numbers.pass_at_1),
    "pass@1 by tier": ("pass@1 after the last step", numbers.scores(1)),
    "best@8": ("best@8, the paper's pass@8, after the last step, mean over the tiers", numbers.best_at_8),
    "best@8 by tier": ("best@8, the paper's pass@8, after the last step", numbers.scores(K)),
    "mastered share by third": ("share of sampled prompts with p = 1", numbers.thirds(MASTERED)),
    "mastered share's rise by third": (
        "share of sampled prompts with p = 1 minus that in the third before",
        numbers.rises,
    ),
    "mastered share in the end": (
        "share of sampled prompts with p = 1, mean over the last fifth of the steps",
        numbers.of_steps(numbers.end, MASTERED),
    ),
    "all-wrong share by third": ("share of sampled prompts with p = 0", numbers.thirds(ALL_WRONG)),
    "next-step accuracy": (
        "accuracy of mastered prompts resampled under the next step's policy",
        numbers.of_probe("mastery", "accuracy_lag_1"),
    ),
    "same-policy accuracy": (
        "accuracy of mastered prompts resampled under the same policy",
        numbers.of_probe("mastery", "same_policy"),
    ),
    "next-step gap": (
        "same-policy minus next-step accuracy of mastered prompts, mean over their steps; each step counts once",
        numbers.of_cohorts(numbers.gap),
    ),
    "deepest next-step gap": (
        "next-step gap in the fifth of training where it is largest; half of the prompts select that fifth, the other "
        "half measure it, so that small cohorts do not look deeper",
        numbers.of_cohorts(numbers.deepest),
    ),
    "next-step swings": (
        "mean squared change of next-step accuracy from step to step, minus the sampling variance of the cohorts",
        numbers.of_cohorts(numbers.swings),
    ),
    "early minus later swings": (
        "next-step swings in the first third of the steps minus those in the rest",
        numbers.of_cohorts(numbers.early_swings),
    ),
    "drift's share of the drop": (
        "next-step gap as a share of 1 minus next-step accuracy, each prompt counted once per step",
        numbers.of_probe("mastery", numbers.drift_share),
    ),
    "entropy rise": (
        "mean entropy (nats) of the last fifth of the steps minus the first",
        numbers.of_steps(numbers.rise, "entropy", probe="entropy"),
    ),
    "entropy kept": (
        "mean entropy of the last fifth of the steps as a share of that of the first",
        numbers.of_steps(numbers.kept, "entropy", probe="entropy"),
    ),
    "accuracies at the ends": (
        "frequency of an accuracy p = k/G below 1/3 (low end) and above 2/3 (high end) minus that of one between, as a "
        "multiple of the frequency if all were equally frequent",
        numbers.bimodality,
    ),
    "majority to mastered": (
        "share of the panel's prompts with .5 < p < 1 that are mastered at the next resampling",
        numbers.of_probe("transitions", numbers.promoted),
    ),
    "weight lost towards mastery": (
        "measured query weight of prompts with .5 < p <= .75 minus that of .75 < p < 1",
        numbers.of_probe(
            "weights", lambda finding: numbers.weight(finding, 0.5, 0.75) - numbers.weight(finding, 0.75, 1)
        ),
    ),
    "weight of majority-correct prompts": (
        "measured query weight of prompts with .5 < p < 1",
        numbers.of_probe("weights", lambda finding: numbers.weight(finding, 0.5, 1)),
    ),
    "zero-variance share": (
        "share of sampled prompts with p = 0 or p = 1, mean over steps",
        numbers.of_steps(np.mean, *DEAD),
    ),
    "least zero-variance share": ("the same at the step where it is least", numbers.of_steps(np.min, *DEAD)),
    "largest zero-variance share": ("the same at the step where it is largest", numbers.of_steps(np.max, *DEAD)),
    "all-wrong share in the end": (
        "share of sampled prompts with p = 0, mean over the last fifth of the steps",
        numbers.of_steps(numbers.end, ALL_WRONG),
    ),
    "pass@1 of the hardest tier": (
        "pass@1 after the last step, last tier",
        numbers.of_tiers(numbers.scores(1), lambda tiers: tiers[-1]),
    ),
    "pass@1 at equal steps": (
        "pass@1 after as many global steps as all runs of the model have, mean over the tiers",
        numbers.at_equal_cost("steps"),
    ),
    "pass@1 at equal rollouts": (
        "pass@1 after as many sampled rollouts as all runs of the model reach, mean over the tiers, linear between "
        "evaluations",
        numbers.at_equal_cost("rollouts"),
    ),
    "pass@1 gained": ("pass@1 after the last step minus the base policy's, mean over the tiers", numbers.gained),
    "best@8 over pass@1": (
        "best@8 minus pass@1 after the last step, mean over the tiers",
        numbers.minus(numbers.best_at_8, numbers.pass_at_1),
    ),
    "flipped advantages": (
        "share of rollouts that are correct and have an advantage below 0, or incorrect and above 0, mean over steps",
        numbers.of_steps(np.mean, "advantage/flipped"),
    ),
    "zero advantages": (
        "share of rollouts with zero advantage, mean over steps",
        numbers.of_steps(np.mean, "advantage/zero"),
    ),
    "clipped share": (
        "share of tokens with an advantage (of sequences, where the method clips sequences) that lose their gradient "
        "by clipping, mean over steps",
        numbers.of_steps(np.mean, "train/clip_high", "train/clip_low"),
    ),
    "rise of length": (
        "mean length of responses, tokens, in the last fifth of the steps minus that in the first",
        numbers.of_steps(numbers.rise, LENGTH),
    ),
    "length in the end": (
        "mean length of responses, tokens, over the last fifth of the steps",
        numbers.of_steps(numbers.end, LENGTH),
    ),
    "rise of wrong answers' length": (
        "mean length of incorrect responses, tokens, in the last fifth of the steps minus that in the first",
        numbers.of_steps(numbers.rise, "train/wrong_length"),
    ),
    "effective share of rollouts": (
        "Kish's effective number of rollouts of a batch over their number, mean over steps",
        numbers.of_probe("weights", "effective_share"),
    ),
}
STATISTICS: Mapping[str, Statistic] = {name: _statistic(name, *declared) for name, declared in _DECLARED.items()}


def per_run(runs: Runs, measures: Mapping[str, Measure], arms: Collection[str] = ()) -> list[Row]:
    """One row per run: regime, model, arm, base_seed, seed, run_id, and a column for each measure that it has.

    A measure of parts (tiers, thirds) has a column for each, `NAME, PART`. arms: by default all.
    """
    found = []
    for cell in runs.cells:
        if arms and cell.arm not in arms:
            continue
        spec = cell.spec
        row: Row = {"block": "run", "regime": spec.regime, "model": spec.model.name, "arm": cell.arm}
        row |= {"base_seed": spec.seed_of_base, "seed": spec.seed, "run_id": spec.run_id}
        numbers = {name: measure(runs, cell) for name, measure in measures.items()}
        for name, parts in numbers.items():
            row |= {name if part == WHOLE else f"{name}, {part}": value for part, value in parts.items()}
        found.append(row)
    return found


def rows(of_runs: Sequence[Row], names: Iterable[str], baseline: str) -> list[Row]:
    """One row per regime, model, arm and measure, from rows of `per_run`.

    Columns: `mean`, `low`, `high` over `seeds`; `difference` and its bounds, paired by base policy and seed with the
    arm `baseline`. Runs without the number are left out.
    """
    values: dict[tuple[str, ...], dict[tuple[int, int], float]] = {}
    for name in names:
        for run in of_runs:
            if name in run:
                key = (run["regime"], run["model"], run["arm"], name)
                values.setdefault(key, {})[run["base_seed"], run["seed"]] = run[name]
    found = []
    for (regime, model, arm, name), by_seed in values.items():
        mean = stats.t_interval([*by_seed.values()])
        row: Row = {"block": "measured", "regime": regime, "model": model, "arm": arm, "statistic": name}
        row |= {"seeds": mean.n, "mean": mean.mean, "low": mean.low, "high": mean.high}
        base = values.get((regime, model, baseline, name), {})
        if arm != baseline and (paired := [by_seed[seed] - base[seed] for seed in by_seed if seed in base]):
            difference = stats.t_interval(paired)
            row |= render.columns("difference", difference.mean, difference.low, difference.high)
        found.append(row)
    return found


def grids(found: Sequence[Row]) -> list[Grid]:
    """A grid per regime and model: a line per arm, a column per statistic, differences in brackets."""
    made = []
    for regime, model in dict.fromkeys((row["regime"], row["model"]) for row in found):
        here = {
            (row["arm"], row["statistic"]): row for row in found if (row["regime"], row["model"]) == (regime, model)
        }
        names = [*dict.fromkeys(name for _, name in here)]
        arms = dict.fromkeys(arm for arm, _ in here)
        cells = [[arm, *(_shown(here.get((arm, name))) for name in names)] for arm in arms]
        made.append(Grid(f"{regime}, {model}", ["arm", *names], cells, labels=1))
    return made


def _shown(row: Row | None) -> str:
    if row is None:
        return "-"
    text = render.change(row["mean"], (row["high"] - row["low"]) / 2, DIGITS).removeprefix("+")
    if "difference" not in row:
        return text
    half = (row["difference_high"] - row["difference_low"]) / 2
    return f"{text} ({render.change(row['difference'], half, DIGITS)})"
