"""Restricts what verl's checkpoints (pickles) may contain, so that loading one runs no code; imported by every process.

verl loads them with `torch.load(weights_only=False)`, which TORCH_FORCE_WEIGHTS_ONLY_LOAD (set in `overrides.py`)
overrides. torch then allows tensors, sharded ones included; this module adds the one other type they hold, the array
with the state of NumPy's random generator.
"""

from typing import Any

import numpy as np
import torch

STATE: Any = np.empty(0, dtype=np.uint32)

torch.serialization.add_safe_globals([np.ndarray, np.dtype, type(STATE.dtype), STATE.__reduce__()[0]])
