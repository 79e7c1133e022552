"""One difference of two arms as a row: its means and test, what the design finds, and where its variance comes from."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mcpo_cli.compare import verdicts
from mcpo_cli.compare.pairs import Pair
from mcpo_cli.compare.scores import MEAN, Metric
from mcpo_cli.render.product import Row
from mcpo_cli.statistics.crossed import Estimate, Over
from mcpo_cli.statistics.power import noncentrality
from mcpo_cli.statistics.stats import LEAST, ROUNDING

if TYPE_CHECKING:
    from mcpo_cli.compare.comparison import Question


def difference(pair: Pair, metric: Metric, question: "Question", over: Over) -> Row:
    """A difference as columns: see `tested`, and `needed`."""
    return tested(pair, metric, question, over) | needed(pair, metric, question, over)


def tested(pair: Pair, metric: Metric, question: "Question", over: Over) -> Row:
    """The means, the difference with its test, and the design."""
    estimate = pair.estimate(metric, over)
    mean, baseline_mean = pair.means(metric)
    by_seed = np.array(pair.by_seed(metric))
    change_P = pair.change_P(metric)
    better_P = -change_P if question.lower else change_P
    differing = len(np.unique(pair.cluster_P[np.abs(change_P) > ROUNDING]))
    return {
        "benchmark": pair.benchmark,
        "metric": str(metric),
        "k": metric.k,
        "arm": pair.arm,
        **verdicts.judged(
            estimate, question.margin, question.level, lower=question.lower, share=pair.share, differing=differing
        ),
        "gained": int((better_P > ROUNDING).sum()),
        "lost": int((better_P < -ROUNDING).sum()),
        "mean": mean,
        "baseline_mean": baseline_mean,
        "problems": estimate.problems,
        "clusters": len(np.unique(pair.cluster_P)),
        "seeds": min(estimate.seeds),
        "samples": pair.samples,
        "over": estimate.over,
        "paired_by_seed": pair.same_seeds,
        "by_seed": tuple(by_seed.tolist()),
        "sd": float(by_seed.std(ddof=1)) if by_seed.size > 1 else math.nan,
        "above": int((by_seed > ROUNDING).sum()),
        "detectable": _detectable(estimate, question.level),
        "share": pair.share,
    }


def needed(pair: Pair, metric: Metric, question: "Question", over: Over) -> Row:
    """The effect that should be found, and the numbers of problems, seeds or samples that find it."""
    estimate = pair.estimate(metric, over)
    effect = question.margin or question.smallest or abs(estimate.test.mean)
    row: Row = {"effect": effect}
    # For other metrics a sample's variance is not a response's, so no needed numbers are given for them.
    if metric == MEAN and estimate.test.error > ROUNDING:
        sources = pair.sources(pair.estimate(metric, "both" if pair.has_problems else "seeds"))
        sources = replace(sources, level=question.level)
        if estimate.over in ("problems", "both") or (estimate.over == "seeds" and not math.isnan(sources.seed)):
            numbers = sources.needed(effect, estimate.problems, min(estimate.seeds), pair.samples, estimate.over)
            row |= {f"needed_{name}": math.nan if value is None else value for name, value in numbers.items()}
    return row


def _detectable(estimate: Estimate, level: float) -> float:
    """The smallest difference that the design finds with probability .8; NaN without a test."""
    if estimate.test.n < LEAST or not estimate.test.error > ROUNDING:
        return math.nan
    return estimate.test.error * noncentrality(estimate.test.df, level)


def source_rows(pair: Pair) -> Iterator[Row]:
    """Sources of the variance of the difference of mean scores."""
    estimate = pair.estimate(MEAN, "both")
    sources, problems, seeds = pair.sources(estimate), estimate.problems, min(estimate.seeds)
    parts = {
        "problems": (sources.problem, problems),
        "seeds": (sources.seed, seeds),
        "problem x seed": (sources.cell, problems * seeds),
        "samples": (sources.sample, problems * seeds * pair.samples),
    }
    terms = {name: variance / number for name, (variance, number) in parts.items() if not math.isnan(variance)}
    total = sum(terms.values())
    for name, part in terms.items():
        sd, share = math.sqrt(parts[name][0]), part / total if total > 0 else 0.0
        yield {"benchmark": pair.benchmark, "arm": pair.arm, "source": name, "sd": sd, "share": share}
