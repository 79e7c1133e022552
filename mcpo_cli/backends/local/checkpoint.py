"""Checkpoints: whole or absent, with checksums, and no pickle.

A folder `checkpoints/step_<s>` holds the weights and the optimizer's moments as safetensors and a manifest. One that
was damaged after it was written is passed over, and the one before it is taken.
"""

import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from mcpo_cli.runs import folders
from mcpo_cli.runs.journal import Journal, read_json

KEPT = 2
"""Checkpoints kept in an attempt: the newest, and one to fall back on."""


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on: `tensors` by file name, `step`, and the training stream's `cursor`."""

    step: int
    cursor: int
    tensors: Mapping[str, Mapping[str, Tensor]]


def save(attempt_dir: Path, checkpoint: Checkpoint) -> None:
    """Write `checkpoint` and drop all but the newest `KEPT` of this attempt.

    Raises:
        RunFailed: the disk takes no more; the checkpoints that were there still are.
    """
    folder = attempt_dir / "checkpoints"
    about = {"step": checkpoint.step, "cursor": checkpoint.cursor}
    with folders.whole(folder / f"step_{checkpoint.step:06d}", about) as part:
        for name, tensors in checkpoint.tensors.items():
            save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, part / f"{name}.safetensors")
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
    return filter(_is_whole, by_step)


def load(folder: Path) -> Checkpoint:
    """Read a checkpoint that `newest` found."""
    manifest = read_json(folder / folders.MANIFEST)
    tensors = {name.removesuffix(".safetensors"): load_file(folder / name) for name in manifest["sha256"]}
    return Checkpoint(manifest["step"], manifest["cursor"], tensors)


def step_of(folder: Path) -> int:
    """The global step that a checkpoint was written after."""
    return int(read_json(folder / folders.MANIFEST)["step"])


def _is_whole(folder: Path) -> bool:
    if damage := folders.damage(folder):
        print(f"{damage}; this checkpoint is passed over", file=sys.stderr)
    return not damage
