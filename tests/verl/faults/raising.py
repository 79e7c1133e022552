"""What tests.verl.cpu is, with a grader that raises an error."""

from typing import Any

from mcpo_cli.grading.base import Verdict
from mcpo_cli.grading.graders import trace
from tests.verl import cpu


def _raise(*_arguments: Any, **_settings: Any) -> Verdict:
    raise ZeroDivisionError("the grader is broken")


trace.grade = _raise
__all__ = ["cpu"]
