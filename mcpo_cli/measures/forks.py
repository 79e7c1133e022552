"""The measure of forks: the effect of a fork's change on single prompts and problems.

A fork and its parent run get the same prompts and draw their rollouts at the same quantiles (common random numbers),
unless one of them filters its batch. So the difference of one prompt's accuracy has little noise, and two forks without
a change do not differ at all.
"""

from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from mcpo_cli.config import forking
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import RunFailed
from mcpo_cli.measures.base import Finding, Measure, by_step, means, numbered, without_nan
from mcpo_cli.runs.journal import Journal
from mcpo_cli.statistics import crossed

Key = tuple[int, str, str, int]
"""Step, tier and text of a prompt, and which of its occurrences in that step it is."""


def _fork(spec: RunSpec, journal: Journal) -> Finding:
    """The fork minus the run that it left, over the rows that both have after the fork.

    Tables `steps` and `evaluations`: the values of each step.

    Raises:
        RunFailed: the run is not a fork, or the run that it left is gone.
    """
    if not spec.fork:
        raise RunFailed(f"{spec.run_id} is not a fork", fix=f"mcpo fork {spec.run_id} --at STEP method=NAME")
    run_id, left = forking.parse(spec.fork)
    parent = Journal(journal.run_dir.parent / run_id)
    if not parent.attempts():
        raise RunFailed(f"{run_id}, which {spec.run_id} is forked from, is not in {journal.run_dir.parent}")
    new, old = (_prompts(records, left) for records in (journal, parent))
    rows = [{"step": key[0], "difference": new[key] - old[key]} for key in new if key in old]
    values = means(rows, training=itemgetter("difference"), changed=lambda row: row["difference"] != 0)
    if evaluations := _evaluations(journal, parent, left):
        last = evaluations[-1]
        values |= {"held_out": last["difference"], "held_out_low": last["low"], "held_out_high": last["high"]}
    table = [
        {
            "step": step,
            "prompts": len(of_step),
            "difference": sum(row["difference"] for row in of_step) / len(of_step),
            "changed": sum(row["difference"] != 0 for row in of_step) / len(of_step),
        }
        for step, of_step in by_step(rows).items()
    ]
    return Finding(without_nan(values), {"steps": table, "evaluations": evaluations})


def _evaluations(journal: Journal, parent: Journal, left: int) -> list[dict[str, float]]:
    """One row per evaluation after the fork that both runs have: the mean over tiers of the paired difference.

    The interval is about other problems of these tiers, for these two runs.
    """
    new, old = (_problems(records, left) for records in (journal, parent))
    rows = []
    for step in dict.fromkeys(key[0] for key in new if key in old):
        tiers: dict[str, list[float]] = {}
        for key, accuracy in new.items():
            if key[0] == step and key in old:
                tiers.setdefault(key[1], []).append(accuracy - old[key])
        if min(map(len, tiers.values())) > 1:  # one problem has no spread
            tier_P = np.repeat(np.arange(len(tiers)), [*map(len, tiers.values())])
            interval = crossed.mean(np.concatenate([*tiers.values()])[None], tier_P).test.interval()
            row = {"step": step, "problems": len(tier_P), "difference": interval.mean}
            rows.append(row | {"low": interval.low, "high": interval.high})
    return rows


def _prompts(journal: Journal, after: int) -> dict[Key, float]:
    return _by_key([(row["step"], "", row["prompt"], row["p"]) for row in journal.groups() if row["step"] > after])


def _problems(journal: Journal, after: int) -> dict[Key, float]:
    rows = (row for row in journal.eval() if row["step"] > after and row["n"])
    return _by_key([(row["step"], row["tier"], row["problem"], row["c"] / row["n"]) for row in rows])


def _by_key(rows: Sequence[tuple[int, str, str, float]]) -> dict[Key, float]:
    """The accuracies by key."""
    keys = numbered((step, tier, text) for step, tier, text, _ in rows)
    return {(*key, number): row[-1] for (key, number), row in zip(keys, rows, strict=True)}


FORK = Measure(
    name="fork",
    question="What did the change that a fork made do to the prompts that both runs met?",
    needs=("groups", "eval"),
    values={
        "training": "difference of accuracy of the same prompts, over the steps after the fork",
        "changed": "share of those prompts whose accuracy differs",
        "held_out": "difference of accuracy of the same held-out problems in the last evaluation, mean over tiers",
    },
    shows=("held_out", "training", "changed"),
    measure=_fork,
)
MEASURES = (FORK,)
