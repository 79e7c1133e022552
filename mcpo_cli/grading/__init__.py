"""Grading of answers: extraction, comparison, and worker processes that cannot hang their caller."""

from collections.abc import Sequence
from functools import cache

from mcpo_cli.grading import functions
from mcpo_cli.grading.base import STATUSES, Grade, Grader, Status, check
from mcpo_cli.grading.functions import load
from mcpo_cli.grading.pool import READS, Pool, check_name, registry

__all__ = [
    "READS",
    "STATUSES",
    "Grade",
    "Grader",
    "Pool",
    "Status",
    "check",
    "check_name",
    "grades",
    "loaded",
    "registry",
]


@cache
def loaded(name: str) -> Grader:
    """The grader `name` in this process, without a pool's limits: for graders that need no library and always end."""
    return load(registry()[name])


def grades(name: str, pairs: Sequence[tuple[str, str]], *, apart: bool) -> list[Grade]:
    """The grades of the grader `name` for (gold, response) pairs, in order, as rewards of training.

    apart: grade in a separate process, with a pool's limits, rather than in this one (see `loaded`). A user's function
    always runs apart; the gold of its pairs is a `functions.question`.

    Raises:
        RunFailed: too many of them could not be judged.
    """
    if not apart and not functions.is_function(name):
        grader = loaded(name)
        return [grader.grade(gold, response, extracted=False) for gold, response in pairs]
    graded = _pool(name).grade(pairs)
    check(graded, function=functions.is_function(name))
    return graded


_pools: dict[str, Pool] = {}
"""The pools of this process by grader, each with one worker; they end with it."""


def _pool(name: str) -> Pool:
    """The grader's pool, started at the first answer."""
    if name not in _pools:
        _pools[name] = Pool(name, workers=1, refuse_unevaluated=True)
    return _pools[name]
