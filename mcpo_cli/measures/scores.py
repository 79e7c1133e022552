"""The measure of held-out scores: after the last step, before training, and the difference."""

from collections.abc import Mapping
from statistics import fmean

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.measures.base import Finding, Measure
from mcpo_cli.runs.journal import Journal
from mcpo_cli.statistics import stats

K = 8
"""Samples of best@k."""


def by_tier(journal: Journal, step: int, k: int) -> dict[str, float]:
    """best@k of each tier after global step `step` (0: the base policy); best@1 equals pass@1."""
    counts: dict[str, tuple[list[int], list[int]]] = {}
    for row in journal.eval():
        if row["step"] == step and row["n"]:
            n_Q, c_Q = counts.setdefault(row["tier"], ([], []))
            n_Q.append(row["n"])
            c_Q.append(row["c"])
    return {tier: float(stats.best_at_k(*pair, k).mean()) for tier, pair in counts.items()}


def _mean(name: str, tiers: Mapping[str, float]) -> dict[str, float]:
    parts = {f"{name} by tier, {tier}": value for tier, value in tiers.items()}
    return {name: fmean(tiers.values()), **parts} if tiers else {}


def _scores(spec: RunSpec, journal: Journal) -> Finding:
    last = spec.train.steps
    values = {**_mean("pass@1", by_tier(journal, last, 1)), **_mean(f"best@{K}", by_tier(journal, last, K))}
    before = by_tier(journal, 0, 1)
    if before and "pass@1" in values:
        values["gained"] = values["pass@1"] - fmean(before.values())
    return Finding(values)


SCORES = Measure(
    name="scores",
    question="How well does the policy solve held-out problems after training, and by how much better than before?",
    needs=("eval",),
    values={
        "pass@1": "pass@1 after the last step, mean over the tiers",
        "pass@1 by tier, *": "pass@1 after the last step",
        f"best@{K}": f"best@{K} (best of {K} draws from the samples) after the last step, mean over the tiers",
        f"best@{K} by tier, *": f"best@{K} (best of {K} draws from the samples) after the last step",
        "gained": "pass@1 after the last step minus the base policy's, mean over the tiers",
    },
    shows=("pass@1", f"best@{K}", "gained"),
    measure=_scores,
)
MEASURES = (SCORES,)
