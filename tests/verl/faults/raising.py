"""What tests.verl.cpu is, with a grader that raises an error."""

from typing import Any

from mcpo_cli import tasks
from tests.verl import cpu


def _raise(*_arguments: Any) -> bool:
    raise ZeroDivisionError("the grader is broken")


tasks.correct = _raise
__all__ = ["cpu"]
