"""Number formats of matrix products on a CPU and on CUDA."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mcpo_cli.backends.local.policy import Policy


@contextmanager
def product_precision(policy: Policy) -> Iterator[None]:
    """Within it, float32 matrix products on CUDA use TF32 if the policy's other products are in bfloat16.

    These are the products that yield logits; full float32 does not use tensor cores. TF32 rounds factors to 11 bits,
    bfloat16 to 8. Rounding a factor does not depend on the batch, so log-probabilities of one policy do not differ more
    between batches. The setting is the process's, because the backward pass also needs it; it is restored afterwards.
    """
    old_precision = torch.get_float32_matmul_precision()
    if policy.device.type == "cuda" and policy.dtype == torch.bfloat16:
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(old_precision)
