"""Memory and disk that a run needs, from its settings alone: those of the local engine, and the memory of GPUs."""

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.config.workload import (
    BYTES_FROZEN,
    BYTES_SAMPLED,
    frozen_parameters,
    kv_heads,
    parameters,
    policies_kept,
    trained_parameters,
    vocabulary,
)
from mcpo_cli.machine import GIB

BYTES_TRAINED = 16
"""Bytes per trained weight during training: weight, gradient and two moments, in float32."""
OVERHEAD_BYTES = 0.6e9
"""Memory of a process that has loaded torch and transformers."""
FLOAT = 4
"""Bytes of a number in float32."""
VOCABULARY_NUMBERS = 2**25
"""Largest number of elements of a tensor with a column for each token of the vocabulary (128 MiB in float32)."""
LOGITS_BYTES = 4 * FLOAT * VOCABULARY_NUMBERS
"""Largest size of the tensors with a column for each token of the vocabulary, of which four exist at a time."""
CACHE_BYTES = 4 * GIB
"""Largest memory in bytes of the keys and values of the prompts that are sampled at a time."""


def memory(spec: RunSpec) -> float:
    """Peak bytes of one run of an existing model on the local engine: the larger of two phases.

    An update has weights, gradients, moments, activations and logits; sampling has weights, moments, keys and values.
    """
    train, model = spec.train, spec.model
    weights, trained = FLOAT * parameters(spec), FLOAT * trained_parameters(spec)
    state = weights + 2 * trained + trained * policies_kept(spec)
    prompt, response = spec.task.expected_tokens(train.max_response)
    group = prompt + train.rollouts * (train.max_response if response > train.max_response / 2 else 2 * response)
    kept = min(spec.compute.micro_batch_tokens, min(train.mini_batch, spec.compute.micro_batch) * group)
    query, key = model.heads * model.head_dim, kv_heads(model) * model.head_dim
    a_row = FLOAT * model.layers * (8 * model.hidden + 5 * (query + 2 * key) // 2 + 4 * model.mlp)
    updating = weights + kept * a_row + LOGITS_BYTES
    a_slot = 2 * FLOAT * model.layers * key
    # The buffer of keys and values doubles when it is too small.
    sampling = 2 * min(CACHE_BYTES, train.prompts * (prompt + train.rollouts * train.max_response) * a_slot)
    return OVERHEAD_BYTES + state + max(updating, sampling)


def disk(spec: RunSpec) -> float:
    """Bytes that such a run has on the disk at a time: its checkpoints, the one being written, and the policy.

    Records are left out, because they are much smaller.
    """
    trained = FLOAT * trained_parameters(spec)
    checkpoint = trained * (3 + policies_kept(spec))
    return (spec.compute.checkpoints + 1) * checkpoint + FLOAT * parameters(spec)


def gpu_bytes(spec: RunSpec) -> dict[str, float]:
    """The least memory in bytes that one GPU needs while it `trains` and while it `samples`.

    Training: the GPU's share of the training state, plus one micro-batch's bfloat16 logits with their gradient (none
    with `cluster.fused_kernels`) and its input to each layer. Sampling: the GPU's share of the weights and of one
    sequence's key-value cache, which must fit into the fraction `cluster.gpu_memory` of the GPU.
    """
    model, cluster, train = spec.model, spec.cluster, spec.train
    state = BYTES_TRAINED * trained_parameters(spec) + BYTES_FROZEN * frozen_parameters(spec)
    shared = state / (cluster.nodes * cluster.gpus)
    logits = 0 if cluster.fused_kernels else 2 * BYTES_SAMPLED * cluster.max_tokens_per_gpu * vocabulary(spec)
    inputs = BYTES_SAMPLED * cluster.max_tokens_per_gpu * model.layers * model.hidden
    # `sdpa` masks pairs of tokens of a pass: booleans, and torch's copy of them in bfloat16.
    mask = (1 + BYTES_SAMPLED) * cluster.max_tokens_per_gpu**2 if cluster.attention == "sdpa" else 0
    cache = 2 * BYTES_SAMPLED * model.layers * kv_heads(model) * model.head_dim
    sampled = parameters(spec) + (trained_parameters(spec) if model.lora_rank else 0)
    sampling = BYTES_SAMPLED * sampled + cache * (train.max_prompt + train.max_response)
    samples = sampling / cluster.tensor_parallel / cluster.gpu_memory
    return {"trains": shared + logits + inputs + mask, "samples": samples}
