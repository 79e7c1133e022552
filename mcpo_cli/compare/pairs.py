"""Two sides on one benchmark, and their metrics: pass@k, or maj@k of the most frequent answer."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

import numpy as np
import pandas as pd

from mcpo_cli.compare.log import Scores, Side
from mcpo_cli.errors import ConfigError
from mcpo_cli.statistics import crossed, stats
from mcpo_cli.statistics.crossed import Estimate, Sources
from mcpo_cli.statistics.stats import Floats


@dataclass(frozen=True)
class Metric:
    """pass@k or maj@k."""

    kind: Literal["pass", "maj"]
    k: int

    def __str__(self) -> str:
        return f"{self.kind}@{self.k}"

    def of(self, side: Scores) -> Floats:
        """Its value for each seed and problem; NaN if the cell is missing."""
        if self.kind == "maj":
            return side.majority[self.k]
        if self.k == 1:
            return side.score_SP
        correct_SP = np.rint(side.sum_SP).astype(np.int64)
        return np.asarray(stats.pass_at_k(side.samples_SP, correct_SP, self.k))


FEW_SEEDS, FEW_SAMPLES, FEW_PROBLEMS = 4, 100, 10
"""Up to these numbers of seeds, samples of a side, or problems (with several seeds; or that differ between two sides),
the coverage of intervals is outside 93 to 97 % (`make coverage`)."""
MEAN = Metric("pass", 1)
"""The mean score, which is pass@1 if scores are 0 or 1."""


@dataclass(frozen=True)
class Pair:
    """Two sides on one benchmark, on the problems that both have."""

    benchmark: str
    arm: str
    one: Scores
    other: Scores

    @property
    def same_seeds(self) -> bool:
        """True if the seeds belong together: both sides name the same ones, and share a cell for each of them."""
        if self.one.seeds != self.other.seeds:
            return False
        both_SP = (self.one.samples_SP > 0) & (self.other.samples_SP > 0)
        return bool(both_SP.any(axis=0).all() and both_SP.any(axis=1).all())

    @property
    def most(self) -> int:
        """Largest k of pass@k: the fewest samples of a cell."""
        return min(int(side.samples_SP[side.samples_SP > 0].min()) for side in (self.one, self.other))

    def estimate(self, metric: Metric) -> Estimate:
        """The difference of a metric."""
        return crossed.difference(metric.of(self.one), metric.of(self.other), same_seeds=self.same_seeds)

    @property
    def samples(self) -> float:
        """Mean number of samples of a cell."""
        return float(np.mean([side.samples_SP.mean() for side in (self.one, self.other)]))

    def means(self, metric: Metric) -> tuple[float, float]:
        """The mean of a metric of both sides."""
        one, other = (crossed.mean(metric.of(side)).test.mean for side in (self.one, self.other))
        return one, other

    def limits(self, found: Estimate) -> Iterator[str]:
        """A sentence for each reason why an interval of this pair covers more or less than its level."""
        seeds = min(found.seeds)
        size = f"{seeds} seeds x {found.problems} problems x {self.samples:.3g} samples"
        few = seeds * found.problems * self.samples <= FEW_SAMPLES or found.problems <= FEW_PROBLEMS
        if found.over_seeds and seeds <= FEW_SEEDS:
            yield (
                f"{self.benchmark}: {seeds} training seeds show little of their spread: the interval covers 90 to 98 %"
                ", and the smallest difference is found in 60 to 80 % of the cases"
            )
        if found.over_seeds and few:
            yield f"{self.benchmark}: {size} are few: the interval is wider than it had to be (it covers up to 99 %)"
        mine, theirs = (np.nanmean(side.score_SP, axis=0) for side in (self.one, self.other))
        differing = int((mine != theirs).sum())
        if 0 < differing <= FEW_PROBLEMS:
            yield (
                f"{self.benchmark}: only {differing} of {found.problems} problems differ between {self.arm} and the "
                "baseline: an interval that so few decide can be far too narrow"
            )

    def sources(self, found: Estimate) -> Sources:
        """Sources of the variance of the difference of pass@1."""
        sizes = np.concatenate([side.samples_SP[side.samples_SP > 0] for side in (self.one, self.other)])
        noise = [self.one.noise_SP, self.other.noise_SP]
        return crossed.sources(found, noise, float(len(sizes) / (1 / sizes).sum()))


def majority(side: Side, benchmark: str, scores: Scores, asked: Sequence[int]) -> dict[int, Floats]:
    """maj@k of each seed and problem, for each k that is asked for; NaN if a cell has fewer than k samples.

    Exact over all subsets of k samples, without drawing any, which is unbiased for k new samples. All correct samples
    give one answer; incorrect answers are the same if their texts are, apart from white space; equally frequent answers
    share the win, and a sample without an answer does not vote.

    Raises:
        ConfigError: the side has no answers, or scores other than 0 and 1.
    """
    if not asked:
        return {}
    own = side.samples[side.samples["benchmark"] == benchmark]
    name = f"maj@{max(asked)}"
    if "answer" not in own or own["answer"].isna().all():
        raise ConfigError(
            f"{side.name} has no answers on {benchmark}, which {name} needs",
            fix="name the column of answers: --columns answer=NAME",
        )
    if not scores.binary:
        raise ConfigError(f"{benchmark}: {name} needs scores that are 0 or 1", fix="--k 1")
    wrong_SP = _wrong(own, scores)
    cells = list(np.ndindex(scores.samples_SP.shape))
    found = {}
    for k in asked:
        value_C = [_exact(int(scores.sum_SP[cell]), wrong_SP[cell], int(scores.samples_SP[cell]), k) for cell in cells]
        found[k] = np.array(value_C).reshape(scores.samples_SP.shape)
    return found


def _wrong(own: pd.DataFrame, scores: Scores) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Number of samples of each cell with each incorrect answer, most frequent first."""
    chosen = own[(own["correct"] == 0) & own["answer"].notna()]
    seed_N, problem_N = (
        pd.Categorical(chosen[name], categories=list(known)).codes
        for name, known in (("seed", scores.seeds), ("problem", scores.problems))
    )
    text_N = chosen["answer"].astype(str).str.replace(r"\s+", "", regex=True).to_numpy()
    counts = pd.Series(1, index=pd.MultiIndex.from_arrays([seed_N, problem_N, text_N])).groupby(level=[0, 1, 2]).sum()
    keys, sizes = cast(list[tuple[int, int, str]], counts.index.to_list()), counts.to_list()
    found: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for (seed, problem, text), size in zip(keys, sizes, strict=True):
        if text:
            found[seed, problem].append(int(size))
    return defaultdict(tuple, {cell: tuple(sorted(of_cell, reverse=True)) for cell, of_cell in found.items()})


@lru_cache(maxsize=2**18)
def _exact(correct: int, wrong: tuple[int, ...], samples: int, k: int) -> float:
    """maj@k of one combination of counts; cached, because many cells have the same counts."""
    return stats.maj_at_k(correct, wrong, samples - correct - sum(wrong), k)
