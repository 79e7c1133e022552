"""Parts of a benchmark: filters that read one response in several ways, and categories of its problems.

Filters share their problems, so a task counts once: its score of a problem is the mean over the filters, taken before
anything else. Categories share no problem. Each part gets a line of its own below its benchmark.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from mcpo_cli.compare.pairs import Pair, pair
from mcpo_cli.compare.scores import MEAN, Arm, Metric, Scores

FEWEST = 2
"""Fewest problems of a category that is compared."""


def merged(parts: Mapping[str, Scores], metrics: Sequence[Metric]) -> Scores:
    """The scores of a task: of each problem that all parts have, the mean over the parts of each metric."""
    first, *others = parts.values()
    common = [problem for problem in first.problems if all(problem in part.place for part in others)]
    tables = [part.only(common).of_seeds(first.seeds) for part in parts.values()]
    values = {
        metric: np.mean([metric.of(part) for part in tables], axis=0)
        for metric in dict.fromkeys((MEAN, *metrics))
        if metric == MEAN or all(metric in part.values or metric.k <= part.most for part in tables)
    }
    samples_SP = np.min([part.samples_SP for part in tables], axis=0)
    return replace(
        tables[0],
        samples_SP=samples_SP,
        sum_SP=np.where(samples_SP > 0, values[MEAN], 0.0) * samples_SP,
        square_SP=np.mean([part.square_SP for part in tables], axis=0),
        values=values,
    )


def parts_of(whole: Pair, arm: Arm, baseline: Arm) -> Iterator[tuple[str, Pair]]:
    """The parts of a benchmark of two arms, each with the family of tests that its difference belongs to."""
    filters = baseline.parts.get(whole.benchmark, {})
    if filters.keys() <= arm.parts.get(whole.benchmark, {}).keys():
        one, other = (replace(side, scores=side.parts.get(whole.benchmark, {})) for side in (arm, baseline))
        yield from (("others", pair(one, other, name)) for name in filters)
    categories = np.array(whole.other.categories or whole.one.categories)
    for name in dict.fromkeys(categories.tolist()):
        at_P = np.flatnonzero(categories == name)
        if at_P.size >= FEWEST:
            problems = [whole.other.problems[at] for at in at_P]
            tables = whole.one.only(problems), whole.other.only(problems)
            label = f"{whole.benchmark}: {name}"
            yield "categories", Pair(label, whole.arm, *tables, np.zeros(len(problems), int))
