"""tests.verl.cpu with a grader that raises an error once it has graded many answers."""

import itertools

from mcpo_cli.grading.base import Grade
from mcpo_cli.grading.simple import TRACE
from tests.verl import cpu

GRADED = 600
"""The 144 of the first evaluation, and those of a step or more: 4 per prompt, for about 30 prompts, then for 16."""
_grade = TRACE.grade
_answers = itertools.count(1)


def _grade_or_raise(gold: str, response: str, extracted: bool) -> Grade:
    if next(_answers) > GRADED:
        raise ZeroDivisionError("the grader is broken")
    return _grade(gold, response, extracted)


object.__setattr__(TRACE, "grade", _grade_or_raise)  # a grader is frozen
__all__ = ["cpu"]
