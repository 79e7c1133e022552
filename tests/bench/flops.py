"""How much arithmetic a global step needs, and how fast this machine could do it."""

import time

import torch
from transformers import Qwen3ForCausalLM

from mcpo_cli.config.schema import RunSpec

SIDE = 1536
"""Of the square matrices of the peak: far larger than a cache line, far smaller than memory."""


def global_step(spec: RunSpec, model: Qwen3ForCausalLM, prompt_tokens: int) -> int:
    """Floating-point operations that one global step cannot do without.

    A multiply-add counts 2. A forward pass runs every prompt once a group and every response token but the
    last, which predicts nothing. Weights: 2 operations a parameter and token; the output layer sees response
    tokens and the last of each prompt. Attention: 4 operations (query times key, weight times value) for
    each head, dimension, layer and pair of tokens. Sampling is one forward pass; an update is a forward and
    a backward pass, together three. Norms, rotations, softmax, sampling and the optimizer count nothing.
    """
    train, sizes = spec.train, spec.model
    sequences, response = train.prompts * train.rollouts, train.max_response - 1
    weights = sum(
        parameter.numel() for name, parameter in model.model.layers.named_parameters() if parameter.dim() == 2
    )
    tokens = train.prompts * prompt_tokens + sequences * response
    outputs = train.prompts + sequences * response
    pairs = train.prompts * prompt_tokens * (prompt_tokens + 1) // 2
    pairs += sequences * (response * prompt_tokens + response * (response + 1) // 2)
    attention = 4 * sizes.layers * sizes.heads * sizes.head_dim * pairs
    forward = 2 * weights * tokens + 2 * model.lm_head.weight.numel() * outputs + attention
    return 4 * forward


def peak() -> float:
    """Operations a second of one fp32 matrix product with the threads that torch has now."""
    a, b = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE)
    start = time.perf_counter()
    torch.mm(a, b)
    return 2 * SIDE**3 / (time.perf_counter() - start)
