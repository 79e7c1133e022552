"""Flash attention's interface on a CPU, for verl's ranks that share sequences (Ulysses)."""

from typing import Any

import torch
from torch import Tensor, distributed
from transformers.integrations import flash_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from verl.models.transformers import monkey_patch

NAME = "packed_on_a_processor"
"""A name without the word "flash", for which transformers would look for that package."""


def install() -> None:
    """Install the attention implementation NAME, which verl wraps like flash attention."""
    ALL_ATTENTION_FUNCTIONS.register(NAME, flash_attention.flash_attention_forward)
    monkey_patch._flash_attention_forward = packed
    # gloo lacks it.
    distributed.all_to_all = all_to_all


def packed(
    query: Tensor, key: Tensor, value: Tensor, _mask: None, _length: int, *, position_ids: Tensor, **_options: Any
) -> Tensor:
    """Causal attention within each of the packed sequences: (1, tokens, heads, size of a head)."""
    sequence_T = (position_ids[0] == 0).cumsum(0)
    mask_TT = (sequence_T[:, None] == sequence_T).tril()
    heads_first = (tensor.transpose(1, 2) for tensor in (query, key, value))
    out = torch.nn.functional.scaled_dot_product_attention(*heads_first, attn_mask=mask_TT, enable_gqa=True)
    return out.transpose(1, 2)


def all_to_all(received: list[Tensor], sent: list[Tensor], group: Any = None, async_op: bool = False) -> None:
    """See `torch.distributed.all_to_all`: every rank gets everything, and takes its own part."""
    assert not async_op
    everything = [torch.empty_like(torch.stack(sent)) for _ in sent]
    distributed.all_gather(everything, torch.stack(sent), group=group)
    for target, of_rank in zip(received, everything, strict=True):
        target.copy_(of_rank[distributed.get_rank(group)])
