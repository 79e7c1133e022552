"""The measure of the claims of papers about their methods."""

import numpy as np

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.measures import Finding, Measure, get
from mcpo_cli.measures.scores import by_tier
from mcpo_cli.measures.training import series
from mcpo_cli.runs.journal import Journal


def _measure(spec: RunSpec, journal: Journal) -> Finding:
    metrics = [row["metrics"] for row in journal.steps()]
    values: dict[str, float] = {}
    dead_T, clipped_T = (
        series(metrics, *names)
        for names in (("mastery/mastered", "mastery/all_wrong"), ("train/clip_high", "train/clip_low"))
    )
    if dead_T.size:
        values["zero_variance"] = float(np.mean(dead_T))
        values |= {"least_zero_variance": float(dead_T.min()), "largest_zero_variance": float(dead_T.max())}
    if clipped_T.size:
        values["clipped"] = float(np.mean(clipped_T))
    if tiers := by_tier(journal, spec.train.steps, 1):
        scores = get("scores").measure(spec, journal).values
        values |= {"hardest pass@1": [*tiers.values()][-1], "best@8 over pass@1": scores["best@8"] - scores["pass@1"]}
    return Finding(values)


MEASURE = Measure(
    name="methods",
    question="By what do methods differ: prompts without a gradient, clipping?",
    needs=("steps",),
    also=("eval",),
    values={
        "zero_variance": "share of sampled prompts with p = 0 or p = 1, mean over steps",
        "least_zero_variance": "the same at the step where it is least",
        "largest_zero_variance": "the same at the step where it is largest",
        "clipped": "share of tokens with an advantage (of sequences, where the method clips sequences) that lose their "
        "gradient by clipping, mean over steps",
        "hardest pass@1": "pass@1 after the last step, last tier",
        "best@8 over pass@1": "best@8 minus pass@1 after the last step, mean over the tiers",
    },
    shows=("zero_variance", "clipped"),
    measure=_measure,
)
