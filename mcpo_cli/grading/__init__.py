"""Grading of answers: extraction, comparison, and worker processes that cannot hang their caller."""

import importlib
from functools import cache
from typing import cast

from mcpo_cli.grading.base import STATUSES, Grader, Status, Verdict
from mcpo_cli.grading.pool import Pool, registry

__all__ = ["STATUSES", "Grader", "Pool", "Status", "Verdict", "loaded", "registry"]


@cache
def loaded(name: str) -> Grader:
    """The grader `name` in this process, without a pool's limits: for one that needs no library and always ends."""
    return cast(Grader, importlib.import_module(registry()[name]))
