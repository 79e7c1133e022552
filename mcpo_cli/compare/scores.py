"""Scores of arms x seeds x problems: what is compared, whether it comes from runs, evaluations or logs of other tools.

| word      | meaning                                                                                     |
|-----------|---------------------------------------------------------------------------------------------|
| arm       | one way to train or one model: the scores of its training seeds together                    |
| benchmark | a named set of problems, which a suite calls a tier                                          |
| slice     | arms that are compared with each other: of one base model, at one cost where there is one   |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray

from mcpo_cli.errors import ConfigError
from mcpo_cli.statistics import stats
from mcpo_cli.statistics.stats import ROUNDING, Floats, Ints

Kind = Literal["pass", "best", "maj", "all"]


class Metric(NamedTuple):
    """pass@k, best@k (k draws with replacement), maj@k, or pass^k (all k are correct), whose kind is `all`."""

    kind: Kind
    k: int

    @classmethod
    def parse(cls, text: str) -> "Metric":
        """`pass@8` as a metric.

        Raises:
            ConfigError: it is no metric.
        """
        kind, _, k = text.replace("pass^", "all@").partition("@")
        if kind not in get_args(Kind) or text.startswith("all") or not k.isdecimal() or int(k) < 1:
            raise ConfigError(
                f"--metric {text}: must be pass@K, best@K, maj@K or pass^K",
                fix="--metric pass@1,pass@8",
                code="out_of_bounds",
            )
        return cls(cast(Kind, kind), int(k))

    def __str__(self) -> str:
        return f"pass^{self.k}" if self.kind == "all" else f"{self.kind}@{self.k}"

    def of(self, scores: "Scores") -> Floats:
        """Its value for each seed and problem; NaN if the cell is missing."""
        if self in scores.values:
            return scores.values[self]
        if self == MEAN:
            return scores.score_SP
        return self.of_counts(scores.samples_SP, np.rint(scores.sum_SP).astype(np.int64))

    def of_counts(self, samples: Ints, correct: Ints) -> Floats:
        """pass@k, best@k or pass^k of each cell from the numbers of samples and of correct samples, in their shape."""
        if self.kind == "all":
            return np.asarray(1 - stats.pass_at_k(samples, samples - correct, self.k))
        at_k = stats.pass_at_k if self.kind == "pass" else stats.best_at_k
        return np.asarray(at_k(samples, correct, self.k))


MEAN = Metric("pass", 1)
"""The mean score, which is pass@1 if scores are 0 or 1."""


@dataclass(frozen=True)
class Scores:
    """The scores of one side on one benchmark, by seed and problem."""

    seeds: tuple[str, ...]
    problems: tuple[str, ...]
    samples_SP: Ints
    """Number of samples of each cell; 0 if it is missing."""
    sum_SP: Floats
    """Sum of the scores of a cell: the number of correct samples if scores are 0 or 1."""
    square_SP: Floats
    """Sum of the squares of a cell's scores."""
    values: "Mapping[Metric, Floats]" = field(default_factory=dict)
    """Metrics that do not follow from the counts, of each cell: maj@k (`majority.py`), or scores at a cost between two
    evaluations."""
    clusters: tuple[str, ...] = ()
    """By problem: the name of what it shares with other problems (a passage, a template); empty if nothing is known."""
    categories: tuple[str, ...] = ()
    """By problem: its category; empty if the log has none."""

    @property
    def cluster_names(self) -> tuple[str, ...]:
        """By problem: its cluster, which is the problem itself if nothing is known."""
        return self.clusters or self.problems

    @cached_property
    def place(self) -> dict[str, int]:
        """The index of each problem."""
        return {problem: at for at, problem in enumerate(self.problems)}

    @cached_property
    def score_SP(self) -> Floats:
        """Mean score of each cell; NaN if it is missing."""
        return np.where(self.samples_SP > 0, self.sum_SP / np.maximum(self.samples_SP, 1), np.nan)

    @property
    def noise_SP(self) -> Floats:
        """Variance of a single sample in each cell, without bias; NaN below 2 samples."""
        rest_SP = np.maximum(self.square_SP - self.sum_SP**2 / np.maximum(self.samples_SP, 1), 0.0)
        return np.where(self.samples_SP > 1, rest_SP / np.maximum(self.samples_SP - 1, 1), np.nan)

    @property
    def binary(self) -> bool:
        """True if every score is 0 or 1."""
        return bool(np.allclose(self.sum_SP, self.square_SP))

    @property
    def share(self) -> bool:
        """True if every score is within 0..1."""
        in_bounds = (self.sum_SP >= 0) & (self.square_SP <= self.sum_SP + ROUNDING)
        return bool((in_bounds & (self.sum_SP <= self.samples_SP + ROUNDING)).all())

    @property
    def most(self) -> int:
        """Largest k of pass@k: the fewest samples of a cell; 1 if scores are not 0 or 1, or no counts."""
        counted = self.binary and MEAN not in self.values
        return int(self.samples_SP[self.samples_SP > 0].min()) if counted else 1

    def of_seeds(self, seeds: Sequence[str]) -> "Scores":
        """The scores of some seeds, in the order given."""
        at_S = [self.seeds.index(seed) for seed in seeds]
        return replace(
            self,
            seeds=tuple(seeds),
            samples_SP=self.samples_SP[at_S],
            sum_SP=self.sum_SP[at_S],
            square_SP=self.square_SP[at_S],
            values={metric: value_SP[at_S] for metric, value_SP in self.values.items()},
        )

    def of_cells(self, kept_SP: NDArray[np.bool_]) -> "Scores":
        """The scores without the cells that are not kept, which are missing."""
        return replace(
            self,
            samples_SP=np.where(kept_SP, self.samples_SP, 0),
            sum_SP=np.where(kept_SP, self.sum_SP, 0.0),
            square_SP=np.where(kept_SP, self.square_SP, 0.0),
            values={metric: np.where(kept_SP, value_SP, np.nan) for metric, value_SP in self.values.items()},
        )

    def only(self, problems: Sequence[str]) -> "Scores":
        """The scores of some problems, in the order given."""
        at_P = [self.place[problem] for problem in problems]
        return replace(
            self,
            problems=tuple(problems),
            samples_SP=self.samples_SP[:, at_P],
            sum_SP=self.sum_SP[:, at_P],
            square_SP=self.square_SP[:, at_P],
            values={metric: value_SP[:, at_P] for metric, value_SP in self.values.items()},
            clusters=tuple(self.clusters[at] for at in at_P) if self.clusters else (),
            categories=tuple(self.categories[at] for at in at_P) if self.categories else (),
        )


@dataclass(frozen=True)
class Arm:
    """The scores of one arm, by benchmark."""

    name: str
    scores: Mapping[str, Scores]
    named_seeds: bool = False
    """True if a seed's name says what the seed decides, as for a run of mcpo: then seeds that another arm lacks are
    left out of the difference. Seeds of logs are named by paths, and belong together only if all names are the same."""
    parts: Mapping[str, Mapping[str, Scores]] = field(default_factory=dict)
    """By benchmark: the scores of its parts, if it is a task that several filters read (`parts.merged`)."""


@dataclass(frozen=True)
class Slice:
    """Arms that are compared with each other."""

    arms: Sequence[Arm]
    at: str = ""
    """The cost that is equal for all; empty for logs."""
    model: str = ""
    """The base model of all arms; empty for logs."""

    @property
    def shared(self) -> list[str]:
        """The benchmarks that all arms have."""
        first, *others = self.arms
        return [name for name in first.scores if all(name in arm.scores for arm in others)]
