"""Sources of the variance of a difference between two methods: base policy, seed, problem, samples.

The difference of run r (RL seed r from base policy b) on problem q is taken as

    d_rq = mean + base_b + seed_r + problem_q + rest_rq,

with independent terms; the rest is the effect of a problem on one run (its samples, and training on other prompts). The
components follow from the mean squares of the analysis of variance (Searle, Casella and McCulloch 1992, Variance
Components, chapter 4), exactly and without an iteration, because every run is evaluated on every problem.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mcpo_cli.statistics.stats import Floats


@dataclass(frozen=True)
class Components:
    """Standard deviations of the terms of a difference, and each term's part of the variance of its mean.

    A component below 0, which sampling errors can give, counts as 0.
    """

    base: float
    """NaN if base policy and seed cannot be distinguished: one base policy, or as many as runs."""
    seed: float
    """Deviation of a run, including its base policy if `base` is NaN; NaN for one run."""
    problem: float
    rest: float
    parts: dict[str, float]
    """Variance of the mean difference that each known term contributes."""


def components(diff_RQ: Floats, base_R: ArrayLike) -> Components:
    """Split the variance of a difference.

    Args:
        diff_RQ: method minus baseline, runs x problems, without NaN.
        base_R: the base policy of each run.

    Raises:
        ValueError: there are fewer than 2 runs or 2 problems, or a difference is NaN.
    """
    if diff_RQ.ndim != 2 or min(diff_RQ.shape) < 2 or np.isnan(diff_RQ).any():
        raise ValueError("a difference needs at least 2 runs and 2 problems, without NaN")
    runs, problems = diff_RQ.shape
    mean, run_R, problem_Q = diff_RQ.mean(), diff_RQ.mean(axis=1), diff_RQ.mean(axis=0)
    place_R, size_B = np.unique(np.asarray(base_R), return_inverse=True, return_counts=True)[1:]
    bases = size_B.size if 1 < size_B.size < runs else 1
    # Runs that differ only in their base policy are separate groups only if a base policy has several.
    base_R1 = np.bincount(place_R, weights=run_R)[place_R] / size_B[place_R] if bases > 1 else np.full(runs, mean)
    rest = _square(diff_RQ - run_R[:, None] - problem_Q + mean, (runs - 1) * (problems - 1))
    problem = max(0.0, (_square(problem_Q - mean, problems - 1) * runs - rest) / runs)
    within = problems * _square(run_R - base_R1, runs - bases)
    seed = max(0.0, (within - rest) / problems)
    parts = {"seed": seed / runs, "problem": problem / problems, "rest": rest / (runs * problems)}
    base = math.nan
    if bases > 1:
        between = problems * _square(base_R1 - mean, bases - 1)
        usual = (runs - (size_B**2).sum() / runs) / (bases - 1)
        base = max(0.0, (between - within) / (problems * usual))
        parts["base"] = base * float((size_B**2).sum()) / runs**2
    return Components(math.sqrt(base), math.sqrt(seed), math.sqrt(problem), math.sqrt(rest), parts)


def _square(residual: Floats, freedom: int) -> float:
    """Mean square."""
    return float((residual**2).sum() / freedom)
