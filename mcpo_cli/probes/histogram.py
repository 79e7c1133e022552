"""Accuracy histogram (Fig. 3a): the number of prompts with k of G rollouts right, per step and over the run."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.probes.base import Finding, Probe
from mcpo_cli.probes.intervals import by_step, mean_over_steps
from mcpo_cli.records import GroupRow
from mcpo_cli.runs.journal import Journal


def measure(spec: RunSpec, journal: Journal) -> Finding:
    """Shares among all sampled prompt groups, before any filter; a prompt counts each time it is sampled.

    Values: `prompts`, their mean `accuracy`, and the shares `at_0` (p = 0), `at_1` (p = 1) and `middle`
    (1/3 <= p <= 2/3; 5/17 for G = 16 if all k were equally frequent).
    Table `bins`: `prompts` and `share` for each p = k/G. Table `steps`: the same for each global step.
    """
    groups, G = journal.groups(), spec.train.rollouts
    steps = [row["step"] for row in groups]
    right = [round(row["p"] * G) for row in groups]
    values = {
        "prompts": float(len(groups)),
        **mean_over_steps("accuracy", [row["p"] for row in groups], steps),
        **mean_over_steps("at_0", [float(k == 0) for k in right], steps),
        **mean_over_steps("at_1", [float(k == G) for k in right], steps),
        **mean_over_steps("middle", [float(G <= 3 * k <= 2 * G) for k in right], steps),
    }
    bins = [
        row | mean_over_steps("share", [float(k == row["right"]) for k in right], steps) for row in _bins(G, groups)
    ]
    table = [
        {"step": step, **row, "share": row["prompts"] / len(here)}
        for step, here in by_step(groups).items()
        for row in _bins(G, here)
    ]
    return Finding(values, {"bins": bins, "steps": table})


def _bins(G: int, groups: Sequence[GroupRow]) -> list[dict[str, Any]]:
    counts = Counter(round(row["p"] * G) for row in groups)
    return [{"right": k, "p": k / G, "prompts": counts[k]} for k in range(G + 1)]


PROBE = Probe(
    name="histogram",
    question="How is the accuracy of training prompts distributed: are most of them at the ends?",
    needs=("groups",),
    shows=("accuracy", "at_0", "middle", "at_1", "prompts"),
    measure=measure,
)
