"""Grading that fails for single answers, as if its process were killed."""

import itertools
from typing import Any

from mcpo_cli.backends.verl import reward
from mcpo_cli.grading import Grade
from tests.verl import cpu

EVERY, FIRST = 48, 20
"""One of the 32 answers of a step, three of the 144 of the evaluation after it: just below the limit."""
_grade = reward.grade
_answers = itertools.count(1)


async def _grade_or_fail(*answer: Any) -> Grade:
    if next(_answers) % EVERY == FIRST:
        return Grade("infra_error", detail="the grading process was killed")
    return await _grade(*answer)


reward.grade = _grade_or_fail
__all__ = ["cpu"]
