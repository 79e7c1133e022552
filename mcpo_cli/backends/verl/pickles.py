"""Imported first by each process of verl: what the pickles of its checkpoints may hold, so that none can run code.

verl reads its checkpoints, which are pickles, with `torch.load(weights_only=False)`; TORCH_FORCE_WEIGHTS_ONLY_LOAD,
which `overrides.py` sets, overrules that. What remains is to allow the one thing in them that torch does not know:
the state of NumPy's random numbers, an array. (torch itself allows sharded tensors.)
"""

from typing import Any

import numpy as np
import torch

STATE: Any = np.empty(0, dtype=np.uint32)

torch.serialization.add_safe_globals([np.ndarray, np.dtype, type(STATE.dtype), STATE.__reduce__()[0]])
