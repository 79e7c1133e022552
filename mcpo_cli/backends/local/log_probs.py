"""Log-probabilities of tokens where the products of a policy are in bfloat16 on a CPU."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


def log_probs(x_NE: Tensor, weight_VE: Tensor, row: Tensor, token: Tensor) -> Tensor:
    """Log-probability of each `token`, in any shape, where row `row` of the hidden states `x_NE` predicts."""
    apply: Callable[..., Tensor] = ReducedBackward.apply
    return apply(x_NE, weight_VE, row.flatten(), token.flatten()).view_as(row)


class ReducedBackward(torch.autograd.Function):
    """logp_K of K tokens, computed in float32; the products of its backward pass are in bfloat16.

    The output layer has a fifth of SmolLM2's weights, and two of its three products are in the backward pass.
    The forward pass stays in float32, because torch would also round its output, and a step of bfloat16 is 0.125
    between 16 and 32. Shape suffixes as in `policy.py`.
    """

    @staticmethod
    def forward(ctx: Any, x_NE: Tensor, weight_VE: Tensor, row_K: Tensor, token_K: Tensor) -> Tensor:
        """The log-probability of token `token_K` where row `row_K` of the hidden states `x_NE` predicts."""
        logp_NV = functional.linear(x_NE, weight_VE).log_softmax(-1)
        place_K = row_K * len(weight_VE) + token_K
        logp_K = logp_NV.flatten()[place_K]
        ctx.save_for_backward(x_NE, weight_VE, place_K, logp_K, logp_NV.exp_().bfloat16())
        return logp_K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_K: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the hidden states and, if it is trained, of the weight."""
        x_NE, weight_VE, place_K, logp_K, probability_NV = ctx.saved_tensors
        row_K = place_K // len(weight_VE)
        total_N = grad_K.new_zeros(len(x_NE)).index_add_(0, row_K, grad_K)
        change_NV = probability_NV * -total_N[:, None].bfloat16()
        # In float32 at the tokens themselves: 1 - p of a likely token would be lost in bfloat16.
        place_U, index_K = place_K.unique(return_inverse=True)
        chosen_U = grad_K.new_zeros(len(place_U)).index_add_(0, index_K, grad_K)
        probability_U = grad_K.new_zeros(len(place_U)).index_copy_(0, index_K, logp_K.exp())
        chosen_U -= total_N[place_U // len(weight_VE)] * probability_U
        change_NV.view(-1)[place_U] = chosen_U.bfloat16()
        x_grad_NE = (change_NV @ weight_VE.bfloat16()).to(x_NE.dtype)
        weight_grad_VE = (change_NV.t() @ x_NE.bfloat16()).to(weight_VE.dtype) if ctx.needs_input_grad[1] else None
        return x_grad_NE, weight_grad_VE, None, None
