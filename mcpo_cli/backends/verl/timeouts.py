"""Lets verl's ranks wait for each other for an hour; imported by every process of verl.

Ranks wait while rank 0 reads the weights and while a slow disk takes a checkpoint. torch allows 10 minutes for that
with NCCL. verl 0.9.1 has a setting, `actor_rollout_ref.nccl_timeout`, which nothing in it reads: its workers ask for
torch's default. The sharding of FSDP over all ranks uses the group that is made here.
"""

import functools
from typing import Any

from verl.utils import distributed

SECONDS = 3600

init = distributed.initialize_global_process_group_ray


@functools.wraps(init)
def patient(timeout_second: int | None = None, backend: str | None = None) -> Any:
    """verl's function, with SECONDS where it is asked for torch's default."""
    return init(timeout_second or SECONDS, backend)


distributed.initialize_global_process_group_ray = patient
