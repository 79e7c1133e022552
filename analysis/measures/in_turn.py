"""The measure of runs on sorts of sums in turn: what is kept of the first sort while the last one is learned."""

from statistics import fmean

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.measures import Finding, Measure
from mcpo_cli.measures.scores import by_tier
from mcpo_cli.runs.journal import Journal

from ..tasks.sums_in_turn import SumsInTurn


def _measure(spec: RunSpec, journal: Journal) -> Finding:
    task, steps = spec.task, {row["step"] for row in journal.eval()}
    if not isinstance(task, SumsInTurn):
        return Finding({})
    first, *_, last = task.tier_names
    change = task.change_every * (len(task.sorts) - 1) // spec.train.prompts
    after = [by_tier(journal, step, 1) for step in sorted(steps) if step > change]
    if not after or change not in steps:
        return Finding({})
    values = {"kept": fmean(tiers[first] for tiers in after), "learned": fmean(tiers[last] for tiers in after)}
    values["lost"] = by_tier(journal, change, 1)[first] - values["kept"]
    return Finding({**values, "average": (values["kept"] + values["learned"]) / 2})


MEASURE = Measure(
    name="in_turn",
    question="How much of the first sort of sums is kept while the last one is learned?",
    needs=("eval",),
    values={
        "kept": "pass@1 of the first sort, mean over the evaluations after the last change of sort",
        "learned": "pass@1 of the last sort, mean over the same evaluations",
        "lost": "pass@1 of the first sort at that change minus `kept`",
        "average": "mean of `kept` and `learned`",
    },
    shows=("kept", "learned", "lost"),
    measure=_measure,
)
