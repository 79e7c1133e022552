"""LoRA on the local engine (`model.lora_rank`, Hu et al., arXiv 2106.09685).

Each linear layer of the blocks, with weights W (O x I), also has the matrices A (R x I) and B (O x R), of rank R =
`lora_rank`. The layer computes with W + `lora_alpha` / R * B A; only A and B are trained. B starts as zeros, so
training starts from W; A has peft's distribution and comes from the run's seed, as with backend=verl.

The engine adds the product to W before each pass over a batch. That is exact, requires no support by methods and costs
R operations per weight, a small part of a pass over hundreds of tokens. Shape suffixes: O outputs, I inputs, R rank.
"""

import math
from typing import Any

import torch
from torch import Tensor


class Lora:
    """The matrices A_RI and B_OR of each linear layer of the blocks, by the name of its weight."""

    def __init__(self, pairs: dict[str, tuple[Tensor, Tensor]], scale: float) -> None:
        self.pairs, self.scale = pairs, scale

    @staticmethod
    def of(model: Any, rank: int, alpha: int, seed: int) -> "Lora":
        """Fresh matrices for `model`, drawn from `seed`; the model's own weights are frozen."""
        model.requires_grad_(False)
        generator = torch.Generator().manual_seed(seed)
        pairs = {}
        for name, module in model.model.named_modules(prefix="model"):
            if isinstance(module, torch.nn.Linear):
                a_RI = torch.empty(rank, module.in_features)
                torch.nn.init.kaiming_uniform_(a_RI, a=math.sqrt(5), generator=generator)
                weight = module.weight
                b_OR = torch.zeros(module.out_features, rank)
                pairs[f"{name}.weight"] = a_RI.to(weight).requires_grad_(), b_OR.to(weight).requires_grad_()
        return Lora(pairs, alpha / rank)

    def named_parameters(self) -> dict[str, Tensor]:
        """All matrices; their names end as in peft."""
        return {
            f"{name.removesuffix('.weight')}.lora_{letter}.weight": matrix
            for name, pair in self.pairs.items()
            for letter, matrix in zip("AB", pair, strict=True)
        }

    def copy(self) -> "Lora":
        """A copy with its own matrices."""
        pairs = {name: (a.detach().clone(), b.detach().clone()) for name, (a, b) in self.pairs.items()}
        return Lora(pairs, self.scale)

    def merged(self, name: str, weight_OI: Tensor) -> Tensor:
        """The weights of the layer `name` with its matrices added; unchanged for a layer without matrices."""
        if name not in self.pairs:
            return weight_OI
        a_RI, b_OR = self.pairs[name]
        return torch.addmm(weight_OI, b_OR, a_RI, alpha=self.scale)
