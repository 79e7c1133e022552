"""Shares of the four classes of prompts (Figs. 2a and 5): mastered, majority-correct, minority, all wrong."""

from collections import Counter

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.probes.base import Finding, Probe
from mcpo_cli.probes.classes import CLASSES, class_of
from mcpo_cli.probes.intervals import mean_over_steps
from mcpo_cli.runs.journal import Journal


def measure(spec: RunSpec, journal: Journal) -> Finding:
    """Shares among all sampled prompt groups, before any filter.

    Values: the share of each class over the run, and `prompts`, the number of groups. Table `steps`: the same for each
    global step.
    """
    groups = journal.groups()
    steps = [row["step"] for row in groups]
    classes = [class_of(row["p"]) for row in groups]
    values = {"prompts": float(len(groups))}
    for name in CLASSES:
        values |= mean_over_steps(name, [float(own == name) for own in classes], steps)
    sizes, counts = Counter(steps), Counter(zip(steps, classes, strict=True))
    table = [
        {"step": step, "prompts": size, **{name: counts[step, name] / size for name in CLASSES}}
        for step, size in sorted(sizes.items())
    ]
    return Finding(values, {"steps": table})


PROBE = Probe(
    name="composition",
    question="Which share of the prompts is mastered, mostly right, mostly wrong, all wrong?",
    needs=("groups",),
    shows=("mastered", "majority_correct", "minority", "all_wrong"),
    measure=measure,
)
