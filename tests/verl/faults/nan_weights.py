"""Weights that become NaN after the last gradient step of the second global step: finite until then."""

import itertools
from typing import Any

import torch

from tests.verl import cpu

MINI_BATCHES = 2  # of a global step, one optimizer step each
_step = torch.optim.AdamW.step
_steps = itertools.count(1)


def _step_to_nan(optimizer: Any, *arguments: Any, **options: Any) -> Any:
    found = _step(optimizer, *arguments, **options)
    if next(_steps) == 2 * MINI_BATCHES:
        with torch.no_grad():
            for weight in optimizer.param_groups[0]["params"]:
                weight.mul_(torch.nan)
    return found


torch.optim.AdamW.step = _step_to_nan
__all__ = ["cpu"]
