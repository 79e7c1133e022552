"""From the second checkpoint on, files have a size limit: writes fail half-way, as on a full disk."""

import resource
from typing import Any

import torch

from tests.verl import cpu

BYTES = 64 * 1024
_save = torch.save


def _save_little(value: Any, file: Any, *arguments: Any, **options: Any) -> None:
    if "global_step_2" in str(file):
        resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES, BYTES))
    _save(value, file, *arguments, **options)


torch.save = _save_little
__all__ = ["cpu"]
