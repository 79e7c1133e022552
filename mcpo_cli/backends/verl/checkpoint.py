"""verl's checkpoints below `<run>/checkpoints`: which are complete, from which verl resumes, and their policies.

verl writes the files into `global_step_<n>` one by one; we then write a seal that lists them with their sizes.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from mcpo_cli import tokenization
from mcpo_cli.config.cost import KEPT_CHECKPOINTS
from mcpo_cli.config.schema import Model, RunSpec
from mcpo_cli.errors import ConfigError, RunFailed
from mcpo_cli.methods import State
from mcpo_cli.pretrained import write
from mcpo_cli.runs.journal import read_json, sync, write_atomic

if TYPE_CHECKING:
    from torch import Tensor

SEAL = "sealed.json"
METHOD = "method.safetensors"
POINTER = "latest_checkpointed_iteration.txt"
"""File that tells verl which step to resume from."""
LORA_A, LORA_B, LORA_WEIGHT = ".lora_A.default.weight", ".lora_B.default.weight", ".base_layer.weight"
"""Suffixes of a layer's matrices and of its weights in peft's models."""
PEFT_PREFIX = "base_model.model."
"""Prefix of all names in peft's models."""


def folder(root: Path, step: int) -> Path:
    """The folder of the checkpoint of `step`."""
    return root / f"global_step_{step}"


def save_method_state(root: Path, step: int, state: State) -> None:
    """Write the method's state after `step`, unless it is empty. Call it before `seal`."""
    from safetensors.torch import save_file  # imports torch, which a dry run does not need

    if state:
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder(root, step) / METHOD)


def method_state(root: Path, step: int) -> State:
    """The state that `save_method_state` wrote; empty if it wrote none."""
    from safetensors.torch import load_file

    path = folder(root, step) / METHOD
    return load_file(path) if path.exists() else {}


def seal(root: Path, step: int) -> None:
    """Mark the checkpoint of `step` as complete, and remove all but the KEPT_CHECKPOINTS newest."""
    checkpoint = folder(root, step)
    sizes = {str(path.relative_to(checkpoint)): path.stat().st_size for path in _files(checkpoint)}
    for path in (*_files(checkpoint), checkpoint):
        sync(path)
    write_atomic(checkpoint / SEAL, json.dumps({"run_id": root.parent.name, "step": step, "bytes": sizes}))
    sync(checkpoint)
    sync(root)
    for old_step in complete(root)[:-KEPT_CHECKPOINTS]:
        shutil.rmtree(folder(root, old_step))


def failed(root: Path, step: int, error: Exception) -> RunFailed:
    """The error for a checkpoint of `step` that could not be written; removes its remains to free space for records."""
    free_bytes = shutil.disk_usage(root).free
    shutil.rmtree(folder(root, step), ignore_errors=True)
    lines = (error.message if isinstance(error, RunFailed) else str(error)).strip().splitlines()
    return RunFailed(
        f"the checkpoint of step {step} could not be written to {root} "
        f"(free space on that disk: {free_bytes / 2**20:.0f} MiB): {lines[-1] if lines else type(error).__name__}; "
        f"newest complete one: step {newest(root)}"
    )


def complete(root: Path) -> list[int]:
    """The steps of all complete checkpoints, in order."""
    steps = (int(path.name.removeprefix("global_step_")) for path in root.glob("global_step_*"))
    return sorted(step for step in steps if _is_complete(folder(root, step)))


def newest(root: Path) -> int:
    """The step of the newest complete checkpoint, 0 if there is none."""
    return max(complete(root), default=0)


def choose(root: Path, step: int, ranks: int) -> None:
    """Make verl resume from the complete checkpoint of `step`, 0 to start anew; remove incomplete and later ones.

    Raises ConfigError if another number of ranks than `ranks` wrote it.
    """
    shards = len(_shards(folder(root, step) / "actor"))
    if step and shards not in (0, ranks):
        raise ConfigError(
            f"the checkpoint of step {step} was written by {shards} GPUs; verl cannot resume it on {ranks}",
            fix=f"cluster.nodes and cluster.gpus with the product {shards}",
        )
    kept_folders = {folder(root, earlier_step) for earlier_step in complete(root) if earlier_step <= step}
    for path in root.glob("global_step_*"):
        if path not in kept_folders:
            shutil.rmtree(path)
    if step:
        write_atomic(root / POINTER, str(step))
    else:
        (root / POINTER).unlink(missing_ok=True)


def _is_complete(checkpoint: Path) -> bool:
    try:
        seal, run_id = read_json(checkpoint / SEAL), checkpoint.parent.parent.name
        sizes = [(checkpoint / name).stat().st_size == size for name, size in seal["bytes"].items()]
        return seal.get("run_id", run_id) == run_id and all(sizes)
    except (OSError, RunFailed, KeyError):
        return False


def _files(checkpoint: Path) -> list[Path]:
    return sorted(path for path in checkpoint.rglob("*") if path.is_file() and path.name != SEAL)


def export(root: Path, step: int, target: Path, spec: RunSpec) -> None:
    """Write the policy of the complete checkpoint of `step` below `root` to `target`, as a Hugging Face folder.

    verl's own merger rounds every weight to bfloat16; this writes the dtype that the policy was sampled in, and with
    LoRA float32: bfloat16 would round most of a small update away.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    actor = folder(root, step) / "actor"
    in_float32 = spec.compute.device == "cpu" or spec.model.lora_rank
    dtype = torch.float32 if in_float32 else torch.bfloat16
    config = AutoConfig.from_pretrained(actor / "huggingface", trust_remote_code=False)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    weights = lora_merged(_weights(actor), spec.model)
    model.load_state_dict({name: value.to(dtype) for name, value in weights.items()}, assign=True)
    model.tie_weights()
    write.write(target, model, tokenization.load(actor / "huggingface"))


def lora_merged(weights: dict[str, Tensor], model: Model) -> dict[str, Tensor]:
    """The weights of peft's model under the model's own names, with LoRA's matrices added; unchanged without LoRA.

    Raises:
        KeyError: weights with one of the matrices lack the other.
    """
    if not model.lora_rank:
        return weights
    scale = model.lora_alpha / model.lora_rank
    merged_weights: dict[str, Tensor] = {}
    for name, weight_OI in weights.items():
        layer = name.removesuffix(LORA_WEIGHT)
        if layer != name:
            update_OI = weights[layer + LORA_B].float() @ weights[layer + LORA_A].float()
            merged_weights[f"{layer.removeprefix(PEFT_PREFIX)}.weight"] = weight_OI.float() + scale * update_OI
        elif not name.endswith((LORA_A, LORA_B)):
            merged_weights[name.removeprefix(PEFT_PREFIX)] = weight_OI
    return merged_weights


def _weights(actor: Path) -> dict[str, Tensor]:
    """All weights, assembled from the ranks' shards."""
    import torch
    from torch.distributed.tensor import DTensor, Shard

    shards = [_shard(path) for path in _shards(actor)]
    weights = {}
    for name, first_part in shards[0].items():
        if not isinstance(first_part, DTensor):
            weights[name] = first_part
            continue
        local_parts = [shard[name]._local_tensor for shard in shards]
        (placement,) = first_part.placements
        weights[name] = torch.cat(local_parts, placement.dim) if isinstance(placement, Shard) else local_parts[0]
    return weights


def _shards(actor: Path) -> list[Path]:
    """The weights of all ranks, in their order."""
    return sorted(actor.glob("model_world_size_*_rank_*.pt"), key=lambda path: int(path.stem.rpartition("_")[2]))


def _shard(path: Path) -> dict[str, Any]:
    """One rank's weights. verl's only format is pickle, so loading is restricted to tensors."""
    import torch

    try:
        shard: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise ConfigError(f"{path} holds something other than weights and is not loaded") from error
    return shard
