"""Checkpoints: whole or absent, with checksums, and no pickle.

A folder `checkpoints/step_<s>` holds the weights and the optimizer's moments as safetensors and a manifest. A
checkpoint that was damaged after it was written is skipped, and the one before it is taken.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from mcpo_cli import prompt_samplers
from mcpo_cli.runs import folders
from mcpo_cli.runs.folders import Checkpoint


def save(attempt_dir: Path, checkpoint: Checkpoint, number: int) -> None:
    """Write `checkpoint` and drop all but the newest `number` of the run.

    Raises:
        RunFailed: the disk cannot be written; the existing checkpoints are kept.
    """
    folder = attempt_dir / "checkpoints"
    facts = {"run_id": attempt_dir.parent.name, "step": checkpoint.step, "cursor": checkpoint.cursor}
    with folders.atomic_folder(folder / f"step_{checkpoint.step:06d}", facts) as part:
        for name, tensors in checkpoint.tensors.items():
            save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, part / f"{name}.safetensors")
    folders.prune(attempt_dir.parent, number)


def as_tensors(state: prompt_samplers.State) -> dict[str, Tensor]:
    """A sampler's memory as a checkpoint holds it: integers as int64, other numbers as float64."""
    return {
        name: torch.tensor(column, dtype=torch.int64 if all(type(value) is int for value in column) else torch.float64)
        for name, column in state.items()
    }


def as_columns(tensors: Mapping[str, Tensor]) -> prompt_samplers.State:
    """Inverse of `as_tensors`."""
    return {name: column.tolist() for name, column in tensors.items()}


def digest(tensors: Mapping[str, Tensor]) -> str:
    """A SHA-256 of the tensors' names, types, shapes and bits, whatever their order and device."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].cpu().contiguous()
        total.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        total.update(value.flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()
