"""The measure that only claims of the paper use."""

import math
from statistics import fmean

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.measures import Finding, Measure, get
from mcpo_cli.measures.base import without_nan
from mcpo_cli.measures.mastery import cohorts, swings
from mcpo_cli.runs.journal import Journal

EDGE = 1e-9
"""Keeps p = 1/3 and p = 2/3 out of the ends: they belong to the middle."""


def _bimodality(histogram: Finding) -> dict[str, float]:
    rows = histogram.tables["bins"]
    prompts: int = sum(row["prompts"] for row in rows)

    def density(low: float, high: float) -> float:
        counts: list[int] = [row["prompts"] for row in rows if low <= row["p"] <= high]
        return fmean(counts) * len(rows) / prompts

    low, middle, high = density(0, 1 / 3 - EDGE), density(1 / 3, 2 / 3), density(2 / 3 + EDGE, 1)
    return {"ends, low end": low - middle, "ends, high end": high - middle}


def _early_swings(journal: Journal) -> float:
    cohort_TC2 = [*cohorts(journal.rerolls(), 1).values()]
    third = len(cohort_TC2) // 3
    return swings(cohort_TC2[:third]) - swings(cohort_TC2[third:])


def _promoted(transitions: Finding) -> float:
    rows = [row for row in transitions.tables.get("transitions", ()) if row["before"] == "majority_correct"]
    return float(rows[0]["mastered"]) if rows and rows[0]["pairs"] else math.nan


def _weight(weights: Finding, low: float, high: float) -> float:
    """Mean measured weight of the prompts with low < p <= high."""
    curve = weights.tables["curve"]
    rows = [row for row in curve if low < row["p"] <= high and row["prompts"] and "measured" in row]
    prompts = sum(row["prompts"] for row in rows)
    return sum(row["measured"] * row["prompts"] for row in rows) / prompts if rows else math.nan


def _measure(spec: RunSpec, journal: Journal) -> Finding:
    values = _bimodality(get("histogram").measure(spec, journal))
    if journal.files("rerolls"):
        values["early_swings"] = _early_swings(journal)
        values["promoted"] = _promoted(get("transitions").measure(spec, journal))
    if journal.files("gradients"):
        weights = get("weights").measure(spec, journal)
        values["weight_lost"] = _weight(weights, 0.5, 0.75) - _weight(weights, 0.75, 1)
        values["weight_majority"] = _weight(weights, 0.5, 1)
    return Finding(without_nan(values))


MEASURE = Measure(
    name="paper-claims",
    question="What else do the paper's claims say: ends of accuracies, swings, promotion, weights near mastery?",
    needs=("groups",),
    also=("rerolls", "gradients", "steps"),
    values={
        "ends, *": "frequency of an accuracy p = k/G below 1/3 (low end) and above 2/3 (high end) minus that of one "
        "between, as a multiple of the frequency if all were equally frequent",
        "early_swings": "next-step swings in the first third of the steps minus those in the rest",
        "promoted": "share of the panel's prompts with .5 < p < 1 that are mastered at the next resampling",
        "weight_lost": "measured query weight of prompts with .5 < p <= .75 minus that of .75 < p < 1",
        "weight_majority": "measured query weight of prompts with .5 < p < 1",
    },
    shows=("early_swings", "promoted", "weight_lost", "weight_majority"),
    measure=_measure,
)
