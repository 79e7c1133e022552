"""Statistics of the claims that other papers make about their methods (`experiments/method-claims.yaml`)."""

from collections.abc import Callable, Mapping
from statistics import fmean

import numpy as np
import pandas as pd

from mcpo_cli.analysis.equal_cost import AVERAGE, AXES, at_equal
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.measures import STATISTICS as OF_RUNS
from mcpo_cli.analysis.measures import WHOLE, Numbers, Statistic
from mcpo_cli.config.plan import Cell
from mcpo_cli.statistics.stats import Floats

Measure = Callable[[Runs, Cell], Numbers]


def _series(runs: Runs, cell: Cell, *names: str) -> Floats:
    """The sum of metrics at each global step that has all of them."""
    rows = [row["metrics"] for row in runs.journal(cell).steps()]
    return np.array([sum(row[name] for name in names) for row in rows if all(name in row for name in names)])


def _of(number: Callable[[Floats], float], *names: str) -> Measure:
    """A number made of the sum of metrics at each step; left out where no step has them."""

    def measure(runs: Runs, cell: Cell) -> Numbers:
        values = _series(runs, cell, *names)
        return {WHOLE: float(number(values))} if len(values) else {}

    return measure


def _rise(values: Floats) -> float:
    """Mean of the last fifth of the steps minus that of the first."""
    fifth = max(1, len(values) // 5)
    return float(values[-fifth:].mean() - values[:fifth].mean())


def _end(values: Floats) -> float:
    """Mean of the last fifth of the steps."""
    return float(values[-max(1, len(values) // 5) :].mean())


def _hardest(runs: Runs, cell: Cell) -> Numbers:
    tiers = list(OF_RUNS["pass@1 by tier"].measure(runs, cell).values())
    return {WHOLE: tiers[-1]} if tiers else {}


def _more_samples(runs: Runs, cell: Cell) -> Numbers:
    one, best = (OF_RUNS[name].measure(runs, cell) for name in ("pass@1", "best@8"))
    return {WHOLE: best[WHOLE] - one[WHOLE]} if one and best else {}


def accuracies(runs: Runs, cell: Cell) -> dict[int, float]:
    """pass@1 after each global step with an evaluation, mean over the tiers; step 0 is the base policy."""
    counts: dict[int, dict[str, list[float]]] = {}
    for row in runs.journal(cell).eval():
        if row["n"]:
            counts.setdefault(row["step"], {}).setdefault(row["tier"], []).append(row["c"] / row["n"])
    return {step: fmean(map(fmean, tiers.values())) for step, tiers in sorted(counts.items())}


def _at_equal(at: str) -> Measure:
    """pass@1 where `mcpo compare --at` compares: at the largest cost that all runs of the model reach.

    No number where a run did not record its cost, as of an older version.
    """

    def table(runs: Runs) -> "pd.Series[float] | None":
        scores = runs.scores(1)
        if scores[AXES[at]].isna().any():
            return None
        return at_equal(scores, AXES[at], ["pass@1"])["pass@1"].xs(AVERAGE, level="tier")

    def measure(runs: Runs, cell: Cell) -> Numbers:
        spec, scores = cell.spec, runs.once(("at equal", at), lambda: table(runs))
        if scores is None:
            return {}
        return {WHOLE: float(scores[spec.model.name, cell.arm, spec.seed_of_base, spec.seed])}

    return measure


def gained(runs: Runs, cell: Cell) -> Numbers:
    """pass@1 after the last step minus that of the base policy."""
    by_step = accuracies(runs, cell)
    return {WHOLE: by_step[cell.spec.train.steps] - by_step[0]} if by_step else {}


DEAD = ("mastery/mastered", "mastery/all_wrong")
CLIPPED = ("train/clip_high", "train/clip_low")
STATISTICS: Mapping[str, Statistic] = {
    "zero-variance share": Statistic(
        "share of sampled prompts with p = 0 or p = 1, mean over steps", _of(np.mean, *DEAD)
    ),
    "least zero-variance share": Statistic("the same at the step where it is least", _of(np.min, *DEAD)),
    "largest zero-variance share": Statistic("the same at the step where it is largest", _of(np.max, *DEAD)),
    "all-wrong share in the end": Statistic(
        "share of sampled prompts with p = 0, mean over the last fifth of the steps", _of(_end, "mastery/all_wrong")
    ),
    "pass@1 of the hardest tier": Statistic("pass@1 after the last step on the last tier", _hardest),
    "pass@1 at equal steps": Statistic(
        "pass@1 after as many global steps as all runs of the model have, mean over the tiers", _at_equal("steps")
    ),
    "pass@1 at equal rollouts": Statistic(
        "pass@1 after as many sampled rollouts as all runs of the model reach, mean over the tiers, linear between "
        "evaluations",
        _at_equal("rollouts"),
    ),
    "pass@1 gained": Statistic("pass@1 after the last step minus the base policy's, mean over the tiers", gained),
    "best@8 over pass@1": Statistic("best@8 minus pass@1 after the last step, mean over the tiers", _more_samples),
    "flipped advantages": Statistic(
        "share of rollouts that are right and have an advantage below 0, or wrong and above 0, mean over steps",
        _of(np.mean, "advantage/flipped"),
    ),
    "zero advantages": Statistic(
        "share of rollouts without an advantage, mean over steps", _of(np.mean, "advantage/zero")
    ),
    "clipped share": Statistic(
        "share of tokens with an advantage (of sequences, where the method clips sequences) that lose their gradient "
        "by clipping, mean over steps",
        _of(np.mean, *CLIPPED),
    ),
    "rise of length": Statistic(
        "mean length of responses, tokens, in the last fifth of the steps minus that in the first",
        _of(_rise, "train/response_length"),
    ),
    "length in the end": Statistic(
        "mean length of responses, tokens, mean over the last fifth of the steps", _of(_end, "train/response_length")
    ),
    "rise of wrong answers' length": Statistic(
        "mean length of wrong responses, tokens, in the last fifth of the steps minus that in the first",
        _of(_rise, "train/wrong_length"),
    ),
}
