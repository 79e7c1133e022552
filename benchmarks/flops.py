"""The arithmetic that a global step needs, and the speed at which this machine could do it."""

import time

import torch
from transformers import Qwen3ForCausalLM

from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.backends.local.tree import NO_TOKEN
from mcpo_cli.config.schema import RunSpec

SIDE = 1536
"""Rows of the square matrices of `peak`: far larger than a cache line, far smaller than memory."""


def forward(spec: RunSpec, model: Qwen3ForCausalLM, rollouts: Rollouts) -> int:
    """The least floating-point operations of a forward pass over `rollouts`.

    Prefixes that prompts, or rollouts of a prompt, share count once: rows are the distinct prefixes of the prompts, and
    those of each prompt's responses without their last tokens, which predict nothing. A multiply-add counts 2.
    Weights: 2 operations per parameter and row; the output layer sees the last row of each prompt and all rows of
    responses. Attention: 4 operations (query times key, weight times value) for each head, dimension, layer, row, and
    row that it attends to. Norms, rotations, softmax and sampling are not counted.
    """
    sizes, P = spec.model, len(rollouts.prompt_PS)
    weights = sum(
        parameter.numel() for name, parameter in model.model.layers.named_parameters() if parameter.dim() == 2
    )
    prompts = [[token for token in prompt if token != NO_TOKEN] for prompt in rollouts.prompt_PS.tolist()]
    trunk = list(map(len, {tuple(prompt[:end]) for prompt in prompts for end in range(1, len(prompt) + 1)}))
    groups = zip(prompts, rollouts.token_PGT.tolist(), rollouts.length_PG.tolist(), strict=True)
    grown = [
        len(prompt) + length
        for prompt, token_GT, length_G in groups
        for length in map(len, beginnings(token_GT, length_G))
    ]
    pairs = sum(trunk) + sum(grown)
    attention = 4 * sizes.layers * sizes.heads * sizes.head_dim * pairs
    return 2 * weights * (len(trunk) + len(grown)) + 2 * model.lm_head.weight.numel() * (P + len(grown)) + attention


def beginnings(token_GT: list[list[int]], length_G: list[int]) -> set[tuple[int, ...]]:
    """The distinct prefixes of the responses of one prompt, without the empty one and whole responses."""
    return {tuple(tokens[:end]) for tokens, length in zip(token_GT, length_G, strict=True) for end in range(1, length)}


def global_step(spec: RunSpec, model: Qwen3ForCausalLM, sampled: Rollouts, trained: Rollouts) -> int:
    """Floating-point operations of one global step: a forward pass to sample, a forward and a backward one to train.

    A backward pass is two forward passes. `trained`: the groups that have a gradient. The optimizer is not counted.
    """
    return forward(spec, model, sampled) + 3 * forward(spec, model, trained)


def peak() -> float:
    """Operations per second of one fp32 matrix product with torch's current number of threads."""
    a, b = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE)
    start = time.perf_counter()
    torch.mm(a, b)
    return 2 * SIDE**3 / (time.perf_counter() - start)


def products(dtype: torch.dtype, shape: tuple[int, int, int]) -> float:
    """Operations per second of CPU time of products of rows x inputs and a layer's weight; shape: with outputs last."""
    (N, E, F), work = shape, 4e9
    x_NE, weight_FE = torch.rand(N, E).to(dtype), torch.rand(F, E).to(dtype)
    repeats = max(1, round(work / (2 * N * E * F)))
    start = time.process_time()
    for _ in range(repeats):
        torch.nn.functional.linear(x_NE, weight_FE)
    return 2 * N * E * F * repeats / (time.process_time() - start)
