"""Products of rows and the weights of linear layers, in the number format of the weights.

Shape suffixes as in `policy.py`; also F: numbers that a layer makes of a row.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

Matrix = tuple[Tensor, Tensor | None]
"""Weight FE and bias F of a linear layer."""
Matrices = Sequence[Matrix]
"""Linear layers that multiply the same input."""

FUSED = 2**18
"""Maximum number of weights that are copied into one matrix, which saves calls; larger products gain no time."""
FEW_ROWS = range(16, 513)
"""Numbers of rows for which a large product is faster with transposed factors, with the same bits."""


def fused(*matrices: Matrix) -> Matrices:
    """Small matrices as one; large matrices as they are, since copying them costs more than a call."""
    weights, biases = zip(*matrices, strict=True)
    if sum(weight.numel() for weight in weights) > FUSED:
        return matrices
    return [(torch.cat(weights), None if biases[0] is None else torch.cat(biases))]


def products(x_NE: Tensor, matrices: Matrices) -> list[Tensor]:
    """The products of `x_NE` and each of the matrices, which have one number format."""
    x_NE = x_NE.to(matrices[0][0].dtype)  # once for all
    return [product(x_NE, matrix) for matrix in matrices]


def product(x_NE: Tensor, matrix: Matrix) -> Tensor:
    """The product of `x_NE` and a matrix, with its bias.

    Continuing rollouts by a token is a product of few rows and a large matrix. On a CPU it is faster with the large
    matrix as the first factor: 1.1 to 1.5 times as fast for SmolLM2 on an AMD EPYC.
    """
    weight, bias = matrix
    x_NE = x_NE.to(weight.dtype)
    is_transposed = len(x_NE) in FEW_ROWS and weight.numel() > FUSED and bias is None and weight.device.type == "cpu"
    if is_transposed and not torch.is_grad_enabled():
        return (weight @ x_NE.t()).t()
    return functional.linear(x_NE, weight, bias)


def last_apart(outputs: list[Tensor], width: int) -> tuple[Tensor, Tensor]:
    """The products `outputs`, fused or not, as two: of all matrices but the last, and of the last, `width` wide."""
    if len(outputs) == 1:
        first_part, last_part = outputs[0].split([outputs[0].shape[-1] - width, width], dim=-1)
        return first_part, last_part
    *first_parts, last_part = outputs
    return first_parts[0] if len(first_parts) == 1 else torch.cat(first_parts, dim=-1), last_part
