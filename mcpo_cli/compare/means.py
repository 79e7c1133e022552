"""The mean score of each arm with its interval, and pass@k as a function of k."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from mcpo_cli.compare.equal_cost import AVERAGE
from mcpo_cli.compare.pairs import joined
from mcpo_cli.compare.scores import Metric, Slice
from mcpo_cli.render.product import Row
from mcpo_cli.statistics import crossed, stats
from mcpo_cli.statistics.crossed import Estimate, Over
from mcpo_cli.statistics.stats import LEAST


def of_slice(part: Slice, metrics: Sequence[Metric], over: Over) -> Iterator[Row]:
    """One row per arm, benchmark and metric that its scores have, in the columns of `Comparison.arms`.

    AVERAGE is over the benchmarks that all arms have: of others, the means could not be compared.
    """
    for arm in part.arms:
        tables, common = {**arm.scores}, {name: arm.scores[name] for name in part.shared}
        sizes = [len(scores.problems) for scores in common.values()]
        if len(common) > 1 and len({scores.seeds for scores in common.values()}) == 1:
            tables[AVERAGE] = joined(common)
        for benchmark, scores in tables.items():
            stratum_P = np.repeat(np.arange(len(sizes)), sizes) if benchmark == AVERAGE else None
            smallest = min(sizes) if benchmark == AVERAGE else len(scores.problems)
            for metric in metrics:
                if (smallest < 2 and over != "seeds") or (metric not in scores.values and metric.k > scores.most):
                    continue
                cluster_P = np.unique(scores.cluster_names, return_inverse=True)[1]
                estimate = crossed.mean(metric.of(scores), stratum_P, cluster_P, over=over)
                low, high = _interval(estimate, share=scores.share)
                yield {
                    "at": part.at,
                    "model": part.model,
                    "benchmark": benchmark,
                    "metric": str(metric),
                    "k": metric.k,
                    "arm": arm.name,
                    "mean": estimate.test.mean,
                    "low": low,
                    "high": high,
                    "problems": estimate.problems,
                    "seeds": len(scores.seeds),
                    "samples": int(scores.samples_SP.sum()),
                }


def _interval(estimate: Estimate, *, share: bool) -> tuple[float, float]:
    """The 95 % interval of a mean; if scores are within 0..1, the interval is, too."""
    test, number = estimate.test, estimate.problems * estimate.seeds[0]
    if math.isnan(test.error) or (estimate.over == "seeds" and test.n < LEAST):
        return math.nan, math.nan
    if not share:
        interval = test.interval()
        return interval.low, interval.high
    return stats.share_interval(min(1.0, max(0.0, test.mean)), test.error**2, number, test.df)


def curves(part: Slice, over: Over) -> Iterator[Row]:
    """pass@k of each arm on each benchmark; nothing if each problem has one sample, or scores belong to a cost."""
    for arm in () if part.at else part.arms:
        limit = max((int(scores.samples_SP.max()) for scores in arm.scores.values() if scores.binary), default=1)
        powers = [Metric("pass", 2**power) for power in range(limit.bit_length())] if limit > 1 else []
        yield from (row for row in of_slice(Slice([arm]), powers, over) if row["benchmark"] != AVERAGE)
