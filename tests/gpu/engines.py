"""Shared by the parts about verl's engine: settings as users have them, a random model, a batch, one rank.

Only `one_rank` and the code inside it import verl, which must find the environment variables of a run.
"""

import gc
import importlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from mcpo_cli.backends.local import tokenizer as tokenizers
from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.backends.verl import overrides
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import Model, RunSpec
from mcpo_cli.machine import GIB
from mcpo_cli.tasks.chains import Arithmetic
from tests.verl import AS_ON_GPUS, LEAN

SMALL = ("hidden=64", "layers=2", "heads=4", "kv_heads=2", "head_dim=16", "mlp=128", "vocabulary=512")
"""The model of a rehearsal."""
REHEARSED = ("compute.device=cpu", "cluster.plugin=tests.verl.cpu", "cluster.rollout=transformers")
FLOAT32 = "++actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32"


@dataclass(frozen=True)
class Shape:
    """P prompts of S tokens with G rollouts each of at most T tokens; limit: tokens of a forward and backward pass."""

    P: int
    G: int
    S: int
    T: int
    limit: int


def settings(device: str, scale: str, model: str, *more: str) -> RunSpec:
    """A run of MCPO at that scale as users have it, except for settings that a rehearsal cannot have."""
    own = [f"cluster.attention={attention(device)}"]
    if device == "cpu":
        own += [*REHEARSED, *(f"model.{size}" for size in SMALL)]
    (spec,) = load([f"scale={scale}", f"model={model}", "method=mcpo", *own, *more])
    return spec


def as_on_gpus(device: str) -> tuple[str, ...]:
    """Settings of verl with which a rehearsal computes like a run on a GPU."""
    return () if device == "cuda" else AS_ON_GPUS


def attention(device: str) -> str:
    """flash-attn if it is installed, else the implementation that needs no package."""
    flash = device == "cuda" and importlib.util.find_spec("flash_attn") is not None
    return "flash_attention_2" if flash else "sdpa"


def random_model(sizes: Model, device: str, folder: Path, *, logits_std: float | None = None) -> None:
    """Write a Qwen3 of these sizes with random weights, made from its configuration alone.

    logits_std: standard deviation of the logits, in place of that of the initial weights.
    """
    tokenizer = tokenizers.build(Arithmetic().vocabulary)
    config = Qwen3Config(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.hidden,
        intermediate_size=sizes.mlp,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads or sizes.heads,
        head_dim=sizes.head_dim,
        rope_parameters={"rope_type": "default", "rope_theta": sizes.rope_theta},
        tie_word_embeddings=sizes.tied,
        initializer_range=sizes.init_std,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen3ForCausalLM(config)
    if logits_std is not None:
        # The final norm makes hidden states of mean square 1, so this is the deviation of the logits.
        model.model.norm.weight.data.fill_(logits_std / (sizes.init_std * sizes.hidden**0.5))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def lengths(shape: Shape) -> torch.Tensor:
    """length_PG: responses of all lengths from a quarter of T to T."""
    share_PG = torch.rand(shape.P, shape.G, generator=torch.Generator().manual_seed(1))
    return (shape.T * (0.25 + 0.75 * share_PG)).ceil().long()


def random_rollouts(shape: Shape, vocabulary: int) -> Rollouts:
    """Random tokens with log-probability 0."""
    generator = torch.Generator().manual_seed(2)
    prompt_PS, token_PGT = (
        torch.randint(vocabulary, size, generator=generator)
        for size in ((shape.P, shape.S), (shape.P, shape.G, shape.T))
    )
    length_PG, zero_PGT = lengths(shape), torch.zeros(shape.P, shape.G, shape.T)
    ended_PG = torch.ones_like(length_PG, dtype=torch.bool)
    return Rollouts(prompt_PS, token_PGT, length_PG, ended_PG, zero_PGT, zero_PGT)


def accuracies(shape: Shape) -> Sequence[int]:
    """right_P: number of correct rollouts of each prompt; a quarter of the prompts has none, a quarter has all."""
    cycle = (0, shape.G // 2, shape.G, 1)
    return [cycle[prompt % len(cycle)] for prompt in range(shape.P)]


def packing(tokens: int) -> dict[str, Any]:
    """Settings with which verl's engine fills each micro-batch up to that number of tokens."""
    return {"use_dynamic_bsz": True, "max_token_len_per_gpu": tokens}


@contextmanager
def one_rank(spec: RunSpec, folder: Path) -> Iterator[None]:
    """Make this process the only rank of a run of `spec`."""
    rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "DIST_INIT_METHOD": f"file://{folder}/rendezvous"}
    os.environ |= overrides.environment(spec) | rank | LEAN
    if spec.cluster.plugin:
        importlib.import_module(spec.cluster.plugin)
    distributed = importlib.import_module("verl.utils.distributed")
    distributed.initialize_global_process_group_ray()
    yield
    torch.distributed.destroy_process_group()


def seconds(compute: Callable[[], object], device: str) -> float:
    """The seconds that the call takes, including those of the device."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    compute()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def released(device: str) -> None:
    """Free the memory of engines that are no longer used, whose parts refer to each other."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def allocated(device: str) -> float:
    """GiB of the GPU's memory that tensors use now; 0 on a CPU."""
    return torch.cuda.memory_allocated() / GIB if device == "cuda" else 0.0


def difference(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> float:
    """The norm of the difference of two gradients over that of the second, all parameters together.

    Raises:
        ValueError: they are of other parameters.
    """
    if found.keys() != wanted.keys():
        raise ValueError(f"gradients of other parameters: {sorted(found.keys() ^ wanted.keys())[:4]}")
    squares = [(float((found[name] - wanted[name]).norm()) ** 2, float(wanted[name].norm()) ** 2) for name in wanted]
    return (sum(top for top, _ in squares) / sum(bottom for _, bottom in squares)) ** 0.5
