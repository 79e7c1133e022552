"""Changes to torch and verl that every process of verl makes first (VERL_USE_EXTERNAL_MODULES in `overrides.py`).

Timeouts: ranks wait while rank 0 reads the weights and while a checkpoint is written to a slow disk; torch allows 10
minutes for that with NCCL. verl 0.9.1 ignores its own setting, `actor_rollout_ref.nccl_timeout`. FSDP shards over the
group that is made here.

Checkpoints: verl loads pickles with `torch.load(weights_only=False)`, which TORCH_FORCE_WEIGHTS_ONLY_LOAD (set in
`overrides.py`) overrides, so that loading one runs no code. torch then allows only tensors; the only other type in
them is the array with the state of NumPy's random generator.

Log-probabilities: without flash-attn, verl loops over the rows of the logits in Python, and keeps a log-softmax of them
for the gradient. Rows are tokens where sequences are packed; we take ROWS at a time and compute them twice.
"""

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from verl.utils import distributed, torch_functional

SECONDS = 3600
ROWS = 512

_state: Any = np.empty(0, dtype=np.uint32)
torch.serialization.add_safe_globals([np.ndarray, np.dtype, type(_state.dtype), _state.__reduce__()[0]])

_init = distributed.initialize_global_process_group_ray


@functools.wraps(_init)
def _patient(timeout_second: int | None = None, backend: str | None = None) -> Any:
    """verl's function, with SECONDS in place of torch's default."""
    return _init(timeout_second or SECONDS, backend)


distributed.initialize_global_process_group_ray = _patient

_by_row = torch_functional.logprobs_from_logits_v2


@functools.wraps(_by_row)
def _by_piece(logits: Tensor, labels: Tensor) -> Tensor:
    """verl's function; of packed logits (tokens x vocabulary) ROWS at a time."""
    if logits.ndim != 2:
        rows: Tensor = _by_row(logits, labels)
        return rows
    pieces = zip(logits.split(ROWS), labels.split(ROWS), strict=True)
    return torch.cat([checkpoint(_of_piece, *piece, use_reentrant=False, preserve_rng_state=False) for piece in pieces])


def _of_piece(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.log_softmax(-1).gather(-1, labels[:, None]).squeeze(-1)


torch_functional.logprobs_from_logits_v2 = _by_piece
