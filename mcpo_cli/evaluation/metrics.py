"""Computes a benchmark's metrics from its grading rows: statuses, answers and lengths."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcpo_cli.records import GradeRow
from mcpo_cli.statistics import stats

ALIKE_TOKENS = 64
"""Length in tokens from which two equal samples cannot be a coincidence at a temperature above 0."""


def summarize(rows: Sequence[GradeRow], n: int) -> dict[str, float]:
    """The metrics of one benchmark by name, in display order; undefined ones are NaN.

    `pass_at_1` is the mean over problems of c / n. Its two 95 % intervals cover two kinds of repetition: other
    samples of the same problems, and other problems of this kind. Samples that could not be graded enter no metric.

    Args:
        rows: one per problem, at least one.
        n: samples asked for per problem.
    """
    graded, right = (np.array([row[key] for row in rows]) for key in ("n", "c"))
    shares, problems = _shares(graded, right), len(rows)
    mean, problems_low, problems_high = over_problems(graded, right)
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = np.where(graded > 1, shares * (1 - shares) / (graded - 1), np.nan).sum() / problems**2
    samples_low, samples_high = stats.share_interval(mean, float(noise), int(graded.sum()), math.inf)
    return {
        "pass_at_1": mean,
        "pass_at_1_samples_low": samples_low,
        "pass_at_1_samples_high": samples_high,
        "pass_at_1_problems_low": problems_low,
        "pass_at_1_problems_high": problems_high,
        **{f"pass_at_{k}": _mean(stats.pass_at_k(graded, right, k)) for k in range(2, n + 1)},
        f"best_at_{n}": _mean(stats.best_at_k(graded, right, n)),
        **{f"maj_at_{k}": _mean([_majority(row, k) for row in rows]) for k in range(2, n + 1)},
        **_samples(rows),
    }


def over_problems(n: ArrayLike, c: ArrayLike) -> tuple[float, float, float]:
    """Mean of c / n over problems, and its 95 % interval over other problems of the kind; NaN from one problem."""
    shares = _shares(n, c)
    problems, mean = len(shares), float(shares.mean())
    spread = float(shares.var(ddof=1)) / problems if problems > 1 else math.nan
    return mean, *stats.share_interval(mean, spread, problems, problems - 1)


def _shares(n: ArrayLike, c: ArrayLike) -> NDArray[np.float64]:
    """The share of correct samples of each problem; NaN without graded samples."""
    graded = np.asarray(n, dtype=np.float64)
    return np.asarray(c, dtype=np.float64) / np.where(graded > 0, graded, np.nan)


def suspicions(rows: Sequence[GradeRow], n: int, temperature: float) -> list[str]:
    """Warnings about samples that suggest a fault of the sampler or of the prompt rather than of the model."""
    graded = [pair for row in rows for pair in zip(row["statuses"], row["details"], strict=True)]
    warnings = ungraded(graded)
    if text := unanswered([status for status, _ in graded]):
        warnings.append(f"{text}: do they mark it as the prompt asks? The page has their texts")
    if n == 1 or temperature == 0:
        return warnings
    twins = [row for row in rows if row["copies"] == n - 1]
    if len(twins) == len(rows):
        warnings.append(
            f"all {n} samples of every problem are the same: the model is certain of its answers, or they share a seed"
        )
    suspects = [row["problem"] for row in rows if row["long_copies"]]
    if suspects:
        warnings.append(
            f"{len(suspects)} problems have equal samples of {ALIKE_TOKENS} tokens or more (first: {suspects[0]}): "
            "seeds may have been used twice"
        )
    return warnings


def unanswered(statuses: Sequence[str]) -> str:
    """A warning if the grader finds no answer in more than half of the responses; empty otherwise."""
    blank, total = statuses.count("unparsable"), len(statuses)
    text = f"{blank} of {total} responses mark no answer that the grader finds, and count as wrong"
    return text if blank > total / 2 else ""


def ungraded(graded: Iterable[tuple[str, str]]) -> list[str]:
    """The reasons for which responses could not be graded, each with its number. graded: statuses and details."""
    reasons = Counter(detail for status, detail in graded if status == "infra_error")
    return [f"not graded: {count} responses: {reason}" for reason, count in reasons.most_common()]


def copies(texts: Sequence[str]) -> int:
    """Number of `texts` that repeat an earlier one."""
    return len(texts) - len(set(texts))


def _samples(rows: Sequence[GradeRow]) -> dict[str, float]:
    """Shares of all samples, and their mean length in tokens."""
    statuses = Counter(status for row in rows for status in row["statuses"])
    finishes = Counter(finish for row in rows for finish in row["finishes"])
    total = statuses.total()
    return {
        "truncated": finishes["length"] / total,
        "no_room": finishes["no_room"] / total,
        "mean_tokens": math.fsum(tokens for row in rows for tokens in row["tokens"]) / total,
        "copies": sum(row["copies"] for row in rows) / total,
        **{status: statuses[status] / total for status in ("unparsable", "timeout", "infra_error")},
    }


def _majority(row: GradeRow, k: int) -> float:
    """maj@k of one problem: all correct answers count as one answer, incorrect ones are compared by text."""
    graded = [pair for pair in zip(row["statuses"], row["answers"], strict=True) if pair[0] != "infra_error"]
    wrong = Counter("".join(answer.split()) for status, answer in graded if status == "wrong" and answer is not None)
    blank = len(graded) - row["c"] - wrong.total()
    return stats.maj_at_k(row["c"], list(wrong.values()), blank, k)


def _mean(values: Any) -> float:
    return float(np.mean(values))
