"""From the second step on, the kernel limits a training process to its current memory."""

import itertools
import resource
from typing import Any

import psutil
import torch

from tests.verl import cpu

SPARE = 256 * 2**20
"""Memory that the process needs to report its failure."""
MINI_BATCHES = 2
"""Mini-batches of a step."""
_update = torch.optim.AdamW.step
_updates = itertools.count()


def _update_with_little(*arguments: Any, **options: Any) -> Any:
    if next(_updates) == MINI_BATCHES:
        limit = psutil.Process().memory_info().vms + SPARE
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        torch.zeros(4 * SPARE, dtype=torch.uint8)
    return _update(*arguments, **options)


torch.optim.AdamW.step = _update_with_little
__all__ = ["cpu"]
