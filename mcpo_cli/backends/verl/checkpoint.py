"""verl's checkpoints below `<run>/checkpoints`: which are whole, and which one verl resumes from.

verl writes file after file into `global_step_<n>`; the seal, written last, names them with their sizes.
"""

import json
import shutil
from pathlib import Path

from mcpo_cli.backends.base import KEPT_CHECKPOINTS
from mcpo_cli.errors import RunFailed
from mcpo_cli.methods import State
from mcpo_cli.runs.journal import read_json, write_atomic

SEAL = "sealed.json"
METHOD = "method.safetensors"
POINTER = "latest_checkpointed_iteration.txt"
"""The file from which verl reads the step that it resumes from."""


def folder(root: Path, step: int) -> Path:
    """Where the checkpoint of `step` is."""
    return root / f"global_step_{step}"


def save_method_state(root: Path, step: int, state: State) -> None:
    """Write what the method remembers after `step`, before the seal; nothing for a method without a memory."""
    from safetensors.torch import save_file  # torch, which a plan does without

    if state:
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder(root, step) / METHOD)


def method_state(root: Path, step: int) -> State:
    """What `save_method_state` wrote, empty where it wrote nothing."""
    from safetensors.torch import load_file

    path = folder(root, step) / METHOD
    return load_file(path) if path.exists() else {}


def seal(root: Path, step: int) -> None:
    """Mark the checkpoint of `step` as whole, and remove all but the newest that are."""
    final = folder(root, step)
    sizes = {str(path.relative_to(final)): path.stat().st_size for path in _files(final)}
    write_atomic(final / SEAL, json.dumps({"step": step, "bytes": sizes}))
    for old in whole(root)[:-KEPT_CHECKPOINTS]:
        shutil.rmtree(folder(root, old))


def failed(root: Path, step: int, error: Exception) -> RunFailed:
    """That the checkpoint of `step` could not be written; what there is of it makes room for the records."""
    free = shutil.disk_usage(root).free
    shutil.rmtree(folder(root, step), ignore_errors=True)
    said = (error.message if isinstance(error, RunFailed) else str(error)).strip().splitlines()
    return RunFailed(
        f"the checkpoint of step {step} could not be written to {root} ({free / 2**20:.0f} MiB were left on that "
        f"disk): {said[-1] if said else type(error).__name__}; the newest whole one is of step {newest(root)}"
    )


def whole(root: Path) -> list[int]:
    """The steps of all whole checkpoints, in order."""
    steps = (int(path.name.removeprefix("global_step_")) for path in root.glob("global_step_*"))
    return sorted(step for step in steps if _is_whole(folder(root, step)))


def newest(root: Path) -> int:
    """The step of the newest whole checkpoint, 0 where there is none."""
    return max(whole(root), default=0)


def choose(root: Path) -> None:
    """Make verl resume from the newest whole checkpoint, or begin where there is none; remove what is not whole."""
    kept = {folder(root, step) for step in whole(root)}
    for found in root.glob("global_step_*"):
        if found not in kept:
            shutil.rmtree(found)
    if step := newest(root):
        write_atomic(root / POINTER, str(step))
    else:
        (root / POINTER).unlink(missing_ok=True)


def _is_whole(found: Path) -> bool:
    try:
        sizes = read_json(found / SEAL)["bytes"]
        return all((found / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, RunFailed, KeyError):
        return False


def _files(found: Path) -> list[Path]:
    return sorted(path for path in found.rglob("*") if path.is_file() and path.name != SEAL)
