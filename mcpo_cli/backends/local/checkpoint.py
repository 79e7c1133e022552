"""Checkpoints: whole or absent, with checksums, and no pickle.

A folder `checkpoints/step_<s>` holds the weights and the optimizer's moments as safetensors and a
manifest. It is written under another name and renamed, so a folder of this name is complete; a file that
was damaged later fails its checksum and the one before it is taken.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from mcpo_cli.runs.journal import Journal, read_json, write_atomic

KEPT = 2
"""Checkpoints kept in an attempt: the newest, and one to fall back on."""


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on: `tensors` by file name, `step`, and the training stream's `cursor`."""

    step: int
    cursor: int
    tensors: Mapping[str, Mapping[str, Tensor]]


def save(attempt_dir: Path, checkpoint: Checkpoint) -> None:
    """Write `checkpoint` and drop all but the newest `KEPT` of this attempt."""
    folder = attempt_dir / "checkpoints"
    final, part = folder / f"step_{checkpoint.step:06d}", folder / f".part_{checkpoint.step:06d}"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for name, tensors in checkpoint.tensors.items():
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, part / f"{name}.safetensors")
    sums = {path.name: checksum(path) for path in sorted(part.iterdir())}
    manifest = {"step": checkpoint.step, "cursor": checkpoint.cursor, "sha256": sums}
    write_atomic(part / "manifest.json", json.dumps(manifest))
    shutil.rmtree(final, ignore_errors=True)
    part.rename(final)
    for old in sorted(folder.glob("step_*"))[:-KEPT]:
        shutil.rmtree(old)


def newest(run_dir: Path) -> Path | None:
    """The folder of the newest whole checkpoint of the run, whichever attempt wrote it."""
    return next(_whole(run_dir), None)


def kept(run_dir: Path) -> list[Path]:
    """The folders of all whole checkpoints of the run, one a step, oldest first."""
    found: dict[str, Path] = {}
    for path in _whole(run_dir):
        found.setdefault(path.name, path)
    return [found[name] for name in sorted(found)]


def _whole(run_dir: Path) -> Iterator[Path]:
    """Newest first."""
    attempts = Journal(run_dir).attempts()
    found = [path for attempt in attempts for path in (attempt / "checkpoints").glob("step_*")]
    # A later attempt computed the same step again: its checkpoint continues the journal that counts.
    by_step = sorted(found, key=lambda path: (path.name, attempts.index(path.parent.parent)), reverse=True)
    return filter(is_whole, by_step)


def load(folder: Path) -> Checkpoint:
    """Read a checkpoint that `newest` found."""
    manifest = read_json(folder / "manifest.json")
    tensors = {name.removesuffix(".safetensors"): load_file(folder / name) for name in manifest["sha256"]}
    return Checkpoint(manifest["step"], manifest["cursor"], tensors)


def step_of(folder: Path) -> int:
    """The global step that a checkpoint was written after."""
    return int(read_json(folder / "manifest.json")["step"])


def is_whole(folder: Path) -> bool:
    """Whether every file that the manifest names is there with the checksum it was written with."""
    try:
        sums = read_json(folder / "manifest.json")["sha256"]
        return all(checksum(folder / name) == value for name, value in sums.items())
    except (OSError, ValueError, KeyError):
        return False


def checksum(path: Path) -> str:
    """SHA-256 of a file, which is on the disk itself when this returns."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()
