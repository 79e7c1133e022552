"""A worker that kills itself by SIGKILL at the n-th call of a point.

A point names a function that the engine calls at a moment worth dying at; the kill comes before the call does anything.
"""

import importlib
import os
import signal
from typing import Any

POINTS = {
    "warm-up": ("mcpo_cli.backends.local.warmup", "cross_entropy"),
    "sampling": ("mcpo_cli.backends.local.train", "sample"),
    "gradient step": ("mcpo_cli.backends.local.update", "log_probs"),
    "gradient measurement": ("mcpo_cli.backends.local.gradients", "likelihood_direction"),
    "evaluation": ("mcpo_cli.backends.local.train", "sample"),
    "checkpoint write": ("mcpo_cli.backends.local.checkpoint", "save_file"),
    "checkpoint rename": ("mcpo_cli.runs.folders", "write_json"),
}


def die_at(point: str, call: int) -> None:
    """Replace the function of `point` by one that ends the process at its `call`-th call."""
    module, name = POINTS[point]
    owner = importlib.import_module(module)
    original, calls = getattr(owner, name), 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    setattr(owner, name, counted)
