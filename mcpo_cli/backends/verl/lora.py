"""LoRA (`model.lora_rank`, Hu et al., arXiv 2106.09685): the matrices it starts from, and merged weights.

Beside each linear layer with weights W (O x I) stand the matrices A (R x I) and B (O x R), of rank R = `lora_rank`. The
layer computes with W + `lora_alpha` / R * B A; only A and B are trained. B starts as zeros, so training starts from W.
Shape suffixes: O outputs, I inputs, R rank.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mcpo_cli.config.schema import Model

if TYPE_CHECKING:
    from torch import Tensor

A, B, WEIGHT = ".lora_A.default.weight", ".lora_B.default.weight", ".base_layer.weight"
"""How the names of a layer's matrices and of its weights end in peft's models."""
PREFIX = "base_model.model."
"""How all names of peft's models begin."""


def draw(seed: int, engine: Any) -> None:
    """Draw the matrices A of the engine's model from `seed`, with peft's distribution and for any number of ranks.

    peft draws them without a seed. Call it on all ranks; without LoRA it does nothing.
    """
    import torch
    from torch.distributed.tensor import distribute_tensor

    generator = torch.Generator().manual_seed(seed)
    for name, share in engine.module.named_parameters():
        if name.endswith(A):
            drawn_RI = torch.empty(share.shape)
            torch.nn.init.kaiming_uniform_(drawn_RI, a=math.sqrt(5), generator=generator)
            # Every rank has drawn the same, so none has to send anything.
            own = distribute_tensor(drawn_RI.to(share.dtype), share.device_mesh, share.placements, src_data_rank=None)
            share.data.copy_(own)


def merged(weights: dict[str, Tensor], model: Model) -> dict[str, Tensor]:
    """The weights of peft's model as those of the model itself, each with its matrices added; without LoRA unchanged.

    Raises:
        KeyError: weights with one of the matrices lack the other.
    """
    if not model.lora_rank:
        return weights
    scale = model.lora_alpha / model.lora_rank
    found: dict[str, Tensor] = {}
    for name, weight_OI in weights.items():
        layer = name.removesuffix(WEIGHT)
        if layer != name:
            update_OI = weights[layer + B].float() @ weights[layer + A].float()
            found[f"{layer.removeprefix(PREFIX)}.weight"] = weight_OI.float() + scale * update_OI
        elif not name.endswith((A, B)):
            found[name.removeprefix(PREFIX)] = weight_OI
    return found
