"""A worker that kills itself by SIGKILL at the n-th call of a point.

A point names a function that the engine calls at a critical moment; the kill comes just before the call.
"""

import importlib
import os
import signal
import sys
from typing import Any

POINTS = {
    "warm-up": ("mcpo_cli.backends.local.initial_policy", "cross_entropy"),
    "sampling": ("mcpo_cli.backends.local.train", "Trainer.sample", "sample_groups"),
    "gradient step": ("mcpo_cli.backends.local.update", "log_probs"),
    "gradient measurement": ("mcpo_cli.backends.local.gradients", "likelihood_direction"),
    "evaluation": ("mcpo_cli.backends.local.train", "Trainer.sample", "evaluate"),
    "checkpoint write": ("mcpo_cli.backends.local.checkpoint", "save_file"),
    "checkpoint rename": ("mcpo_cli.runs.folders", "write_json"),
}
"""Module and function; and, if several functions call it, the one whose calls count."""


def die_at(point: str, call: int) -> None:
    """Replace the function of `point` by one that ends the process at its `call`-th call."""
    module, name, *callers = POINTS[point]
    owner: Any = importlib.import_module(module)
    *classes, name = name.split(".")
    for one in classes:
        owner = getattr(owner, one)
    original, calls = getattr(owner, name), 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += not callers or sys._getframe(1).f_code.co_name in callers
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    setattr(owner, name, counted)
