"""verl's sharded checkpoints as Hugging Face folders.

verl's own merger rounds every weight to bfloat16; this one writes the dtype that the policy was sampled in. With LoRA
it writes sums in float32: bfloat16 would round most of a small update away.
"""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from mcpo_cli.backends.verl import checkpoint, lora
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError

if TYPE_CHECKING:
    import torch


def policy(root: Path, step: int, target: Path, spec: RunSpec) -> None:
    """Write the policy of the complete checkpoint of `step` below `root` to the folder `target`."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    actor = checkpoint.folder(root, step) / "actor"
    in_float32 = spec.compute.device == "cpu" or spec.model.lora_rank
    dtype = torch.float32 if in_float32 else torch.bfloat16
    config = AutoConfig.from_pretrained(actor / "huggingface", trust_remote_code=False)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    weights = lora.merged(_weights(actor), spec.model)
    model.load_state_dict({name: value.to(dtype) for name, value in weights.items()}, assign=True)
    model.tie_weights()
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(actor / "huggingface", trust_remote_code=False).save_pretrained(target)


def _weights(actor: Path) -> dict[str, torch.Tensor]:
    """All weights, assembled from the ranks' shards."""
    import torch
    from torch.distributed.tensor import DTensor, Shard

    def rank(path: Path) -> int:
        return int(path.stem.rpartition("_")[2])

    paths = sorted(actor.glob("model_world_size_*_rank_*.pt"), key=rank)
    shards = [_shard(path) for path in paths]
    weights = {}
    for name, first in shards[0].items():
        if not isinstance(first, DTensor):
            weights[name] = first
            continue
        local = [shard[name]._local_tensor for shard in shards]
        (placement,) = first.placements
        weights[name] = torch.cat(local, placement.dim) if isinstance(placement, Shard) else local[0]
    return weights


def _shard(path: Path) -> dict[str, Any]:
    """One rank's weights. verl's only format is pickle, so loading is restricted to tensors."""
    import torch

    try:
        shard: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise ConfigError(f"{path} holds something other than weights and is not loaded") from error
    return shard
