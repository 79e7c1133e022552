"""A quick look at golds before they are used; `mcpo components check data` looks at all of a data set."""

from collections.abc import Sequence
from pathlib import Path

from mcpo_cli import data, machine
from mcpo_cli.data.audit import kind, unmatched
from mcpo_cli.data.base import Dataset, Loaded
from mcpo_cli.golds import alternatives
from mcpo_cli.grading import Pool

CHECKED = 200
"""Most golds that are looked at; answers can match every number."""
GOLDS_OF_WORKER = 50
"""Golds for which a further process is worth its start."""


def self_graded(golds: Sequence[str]) -> list[str]:
    """The status of each gold as an answer to itself."""
    with Pool(workers=min(machine.cores(), 1 + len(golds) // GOLDS_OF_WORKER)) as pool:
        return [verdict.status for verdict in pool.grade(((gold, gold) for gold in golds), extracted=True)]


def caution(dataset: Dataset, loaded: Loaded, path: Path | None = None) -> str:
    """A warning about golds that no answer matches, so that every answer to their problems is wrong; empty if none."""
    if loaded.grader != "math_verify":
        return ""
    golds = dict.fromkeys(gold for problem in loaded.problems for gold in alternatives(problem.gold))
    texts = [gold for gold in golds if kind(gold) not in ("integer", "decimal")][:CHECKED]
    wrong = unmatched(texts, self_graded) if texts else []
    if not wrong:
        return ""
    return (
        f"{loaded.source}: no answer is correct for {len(wrong)} of {len(texts)} golds that are no numbers, such as "
        f"{wrong[0][:60]!r}: mcpo components check data {data.audit_words(dataset, path)} lists them"
    )
