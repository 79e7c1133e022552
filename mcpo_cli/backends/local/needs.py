"""Memory and disk that the local engine needs for an existing model, estimated from settings alone.

Peak memory is the larger of two phases: in an
update weights, gradients, moments, activations and logits; while sampling weights, moments, keys and values.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

from mcpo_cli.config import workload
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import location
from mcpo_cli.machine import GIB

OVERHEAD_BYTES = 0.6e9
"""Memory of a process that has loaded torch and transformers."""
FLOAT = 4
"""Bytes of a number in float32."""
VOCABULARY_NUMBERS = 2**25
"""Most numbers of a tensor with a column for each token of the vocabulary (128 MiB in float32)."""
LOGITS_BYTES = 4 * FLOAT * VOCABULARY_NUMBERS
"""Largest size of the tensors with a column for each token of the vocabulary, of which four exist at a time."""
CACHE_BYTES = 4 * GIB
"""Most memory of the keys and values of the prompts that are sampled at a time."""


def memory(spec: RunSpec) -> float:
    """Peak bytes of one run."""
    train, model = spec.train, spec.model
    weights, trained = FLOAT * workload.parameters(spec), FLOAT * workload.trained_parameters(spec)
    state = weights + 2 * trained + (trained if "previous_policy" in spec.method.needs else 0)
    prompt, response = spec.task.expected_tokens(train.max_response)
    group = prompt + train.rollouts * (train.max_response if response > train.max_response / 2 else 2 * response)
    kept = min(spec.compute.micro_batch_tokens, min(train.mini_batch, spec.compute.micro_batch) * group)
    query, key = model.heads * model.head_dim, workload.kv_heads(model) * model.head_dim
    a_row = FLOAT * model.layers * (8 * model.hidden + 5 * (query + 2 * key) // 2 + 4 * model.mlp)
    updating = weights + kept * a_row + LOGITS_BYTES
    a_slot = 2 * FLOAT * model.layers * key
    # Room for keys and values doubles where it is too small.
    sampling = 2 * min(CACHE_BYTES, train.prompts * (prompt + train.rollouts * train.max_response) * a_slot)
    return OVERHEAD_BYTES + state + max(updating, sampling)


def disk(spec: RunSpec) -> float:
    """Most bytes that one run has on the disk at a time: its checkpoints, the one being written, and the policy."""
    trained = FLOAT * workload.trained_parameters(spec)
    checkpoint = trained * (4 if "previous_policy" in spec.method.needs else 3)
    return (spec.compute.checkpoints + 1) * checkpoint + FLOAT * workload.parameters(spec)


@dataclass(frozen=True)
class Free:
    """Free memory and disk of this machine."""

    memory: float
    """Bytes of memory that are free."""
    disk: float
    """Bytes that are free on the disk of `folder`."""
    folder: Path
    """The folder in which runs are kept, or the nearest one above it that exists."""


def free() -> Free:
    """Memory and disk that are free on this machine now."""
    folder = next(path for path in (location(), *location().parents) if path.exists())
    return Free(float(psutil.virtual_memory().available), float(shutil.disk_usage(folder).free), folder)


def check(spec: RunSpec) -> None:
    """Raise ConfigError if the run cannot fit into the memory or onto the disk that are free here."""
    here, needed = free(), memory(spec)
    if spec.compute.device != "cuda" and not Path("/proc/driver/nvidia").exists() and needed > here.memory:
        raise ConfigError(
            f"model={spec.model.name} with {spec.train.prompts} prompts x {spec.train.rollouts} rollouts of up to "
            f"{spec.train.max_response} tokens needs about {needed / GIB:.1f} GiB of memory; {here.memory / GIB:.1f} "
            "GiB are free",
            fix=f"compute.micro_batch_tokens={max(64, spec.compute.micro_batch_tokens // 4)}, fewer train.rollouts, "
            "model.lora_rank=16, or a smaller model",
        )
    if (needed := disk(spec)) > here.disk:
        raise ConfigError(
            f"model={spec.model.name} needs about {needed / GIB:.1f} GiB on the disk of {here.folder}, for "
            f"{spec.compute.checkpoints} checkpoints and one being written; {here.disk / GIB:.1f} GiB are free",
            fix="compute.checkpoints=1, model.lora_rank=16, or MCPO_HOME=FOLDER on a larger disk",
        )
