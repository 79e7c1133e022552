"""The published differences taken together: one contrast over the cells of Table 1, under each source of noise.

Both arms are evaluated on the same problems, and so are both models. How alike the arms find these problems is not
published, and neither are the counts per problem (`published.arrangements`): results are ranges over what fits, for
several correlations between the arms.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import special

from mcpo_cli.analysis.published import METHOD, Audit, Range, Z
from mcpo_cli.statistics.stats import Floats

BASELINE = "DAPO"
CORRELATIONS = (0.0, 0.5, 0.8, 0.9, 1.0)
"""Correlations, over problems, of the two arms' true accuracies."""
PLACES = 9
"""Points at which the range of a cell's mean (c/n)^2 is looked at."""


@dataclass(frozen=True)
class Noise:
    """The pooled difference against one source of noise: ranges over the counts that fit."""

    source: str
    correlation: float
    """NaN if the problems stay the same."""
    error: Range
    """Standard error of the pooled difference."""
    z: Range
    """The difference in standard errors."""

    @property
    def p(self) -> Range:
        """Two-sided p of the normal test: of the larger z, then of the smaller."""
        low, high = (float(2 * special.ndtr(-abs(z))) for z in reversed(self.z))
        return low, high


@dataclass(frozen=True)
class Pooled:
    """METHOD minus BASELINE in pass@1, averaged over all cells of both models."""

    difference: float
    cells: int
    positive: int
    """Number of cells in which METHOD has the higher pass@1."""
    noises: tuple[Noise, ...]
    seed_sd: Range
    """The standard deviation over training seeds, of a model's average difference, that would by itself bring z below
    1.96 together with the sampling of the same problems; 0 where that sampling is enough."""


def pool(audits: Sequence[Audit]) -> Pooled:
    """Test the average difference of the cells that METHOD and BASELINE share.

    A cell's variance has two parts. Other samples of the same problems: S = sum over the arms of (p - q)/((n - 1) N),
    where q is the mean of (c/n)^2 over the N problems. Other problems: T = (t_a + t_b - 2 r sqrt(t_a t_b)) / N with an
    arm's variance of true accuracies t = (q - p^2) N/(N - 1) - (p - q)/(n - 1) and their correlation r. With r = 0 the
    arms' problems might as well be different ones; r = 1 and equal t leave S alone. Differences of the two models on
    one benchmark are correlated by at least 0 and at most 1. No part is noise between training seeds.
    """
    by_key = {(one.cell.benchmark, one.cell.model, one.cell.arm): one for one in audits}
    pairs: dict[str, list[tuple[Audit, Audit]]] = {}
    for (benchmark, model, arm), other in by_key.items():
        if arm == BASELINE:
            pairs.setdefault(benchmark, []).append((by_key[benchmark, model, METHOD], other))
    differences = [a.cell.pass_at_1 - b.cell.pass_at_1 for models in pairs.values() for a, b in models]
    mean, cells = float(np.mean(differences)), len(differences)
    same = _noise("other samples of the same problems", math.nan, pairs, mean, cells)
    others = [_noise("other problems and samples", r, pairs, mean, cells) for r in CORRELATIONS]
    models = max(map(len, pairs.values()))
    room = [max(0.0, (mean / Z) ** 2 - error**2) for error in reversed(same.error)]
    low, high = (math.sqrt(models * variance) for variance in room)
    return Pooled(mean, cells, sum(value > 0 for value in differences), (same, *others), (low, high))


def likelihood_ratio(audits: Sequence[Audit], runs: int) -> float:
    """How much likelier the published pass@1 are if each is one run of n samples than if each is a mean over `runs`.

    A mean over `runs` such runs is a whole number of one run's samples with chance 1/`runs`: the remainder of a sum of
    hundreds of samples is as good as uniform. 0 if some pass@1 is no such number.
    """
    return float(runs ** len(audits)) if all(one.right is not None for one in audits) else 0.0


def _noise(
    source: str, correlation: float, pairs: Mapping[str, Sequence[tuple[Audit, Audit]]], mean: float, cells: int
) -> Noise:
    bounds = [_variance(models, correlation) for models in pairs.values()]
    low, high = (math.sqrt(sum(variances)) / cells for variances in zip(*bounds, strict=True))
    return Noise(source, correlation, (low, high), (mean / high, mean / low))


def _variance(models: Sequence[tuple[Audit, Audit]], correlation: float) -> Range:
    """The least and the largest variance of the sum of the models' differences on one benchmark."""
    parts = [_parts(*pair, correlation) for pair in models]
    # Differences of independent models add up in squares, those of models that find the same differences as they are.
    apart = [float((sampling_K + problem_K**2).min()) for sampling_K, problem_K in parts]
    together = max(
        sum(sampling for sampling, _ in chosen) + sum(problem for _, problem in chosen) ** 2
        for chosen in product(*(zip(sampling_K, problem_K, strict=True) for sampling_K, problem_K in parts))
    )
    return sum(apart), float(together)


def _parts(one: Audit, other: Audit, correlation: float) -> tuple[Floats, Floats]:
    """Variance by samples, and standard deviation by problems, of a cell's difference at each pair of counts K."""
    (sampling_I, true_I), (sampling_J, true_J) = (_arm(audit) for audit in (one, other))
    sampling_K = (sampling_I[:, None] + sampling_J).ravel()
    if math.isnan(correlation):
        return sampling_K, np.zeros_like(sampling_K)
    shared = 2 * correlation * np.sqrt(true_I[:, None] * true_J)
    variance_K = (true_I[:, None] + true_J - shared).ravel() / one.cell.problems
    return sampling_K, np.sqrt(np.maximum(variance_K, 0))


def _arm(audit: Audit) -> tuple[Floats, Floats]:
    """Variance of the mean by samples, and variance of the true accuracies of problems, over the range of q."""
    N, n = audit.cell.problems, audit.cell.samples
    if audit.right is None:
        raise ValueError(f"{audit.cell.arm} on {audit.cell.benchmark}: pass@1 is no whole number of samples")
    p, q_I = audit.right / (N * n), np.linspace(*audit.square, PLACES)
    sample_I = (p - q_I) / (n - 1)
    return sample_I / N, np.maximum((q_I - p**2) * N / (N - 1) - sample_I, 0)
