"""verl's checkpoints below `<run>/checkpoints`: which are complete, and which one verl resumes from.

verl writes the files into `global_step_<n>` one by one; we then write a seal that lists them with their sizes.
"""

import json
import shutil
from pathlib import Path

from mcpo_cli.config.workload import KEPT_CHECKPOINTS
from mcpo_cli.errors import RunFailed
from mcpo_cli.methods import State
from mcpo_cli.runs.journal import read_json, sync, write_atomic

SEAL = "sealed.json"
METHOD = "method.safetensors"
POINTER = "latest_checkpointed_iteration.txt"
"""File that tells verl which step to resume from."""


def folder(root: Path, step: int) -> Path:
    """The folder of the checkpoint of `step`."""
    return root / f"global_step_{step}"


def save_method_state(root: Path, step: int, state: State) -> None:
    """Write the method's state after `step`; a method without state writes nothing. Call it before `seal`."""
    from safetensors.torch import save_file  # imports torch, which a dry run does without

    if state:
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder(root, step) / METHOD)


def method_state(root: Path, step: int) -> State:
    """The state that `save_method_state` wrote; empty if it wrote none."""
    from safetensors.torch import load_file

    path = folder(root, step) / METHOD
    return load_file(path) if path.exists() else {}


def seal(root: Path, step: int) -> None:
    """Mark the checkpoint of `step` as complete, and remove all but the KEPT_CHECKPOINTS newest."""
    final = folder(root, step)
    sizes = {str(path.relative_to(final)): path.stat().st_size for path in _files(final)}
    for path in (*_files(final), final):
        sync(path)
    write_atomic(final / SEAL, json.dumps({"run_id": root.parent.name, "step": step, "bytes": sizes}))
    sync(final)
    sync(root)
    for old in whole(root)[:-KEPT_CHECKPOINTS]:
        shutil.rmtree(folder(root, old))


def failed(root: Path, step: int, error: Exception) -> RunFailed:
    """The error for a checkpoint of `step` that could not be written; removes its remains to free space for records."""
    free = shutil.disk_usage(root).free
    shutil.rmtree(folder(root, step), ignore_errors=True)
    said = (error.message if isinstance(error, RunFailed) else str(error)).strip().splitlines()
    return RunFailed(
        f"the checkpoint of step {step} could not be written to {root} "
        f"(free space on that disk: {free / 2**20:.0f} MiB): {said[-1] if said else type(error).__name__}; "
        f"newest complete one: step {newest(root)}"
    )


def whole(root: Path) -> list[int]:
    """The steps of all complete checkpoints, in order."""
    steps = (int(path.name.removeprefix("global_step_")) for path in root.glob("global_step_*"))
    return sorted(step for step in steps if _is_whole(folder(root, step)))


def newest(root: Path) -> int:
    """The step of the newest complete checkpoint, 0 if there is none."""
    return max(whole(root), default=0)


def choose(root: Path, step: int) -> None:
    """Make verl resume from the complete checkpoint of `step`, 0 to start anew; remove incomplete and later ones."""
    kept = {folder(root, earlier) for earlier in whole(root) if earlier <= step}
    for path in root.glob("global_step_*"):
        if path not in kept:
            shutil.rmtree(path)
    if step:
        write_atomic(root / POINTER, str(step))
    else:
        (root / POINTER).unlink(missing_ok=True)


def _is_whole(checkpoint: Path) -> bool:
    try:
        seal, run_id = read_json(checkpoint / SEAL), checkpoint.parent.parent.name
        sizes = [(checkpoint / name).stat().st_size == size for name, size in seal["bytes"].items()]
        return seal.get("run_id", run_id) == run_id and all(sizes)
    except (OSError, RunFailed, KeyError):
        return False


def _files(checkpoint: Path) -> list[Path]:
    return sorted(path for path in checkpoint.rglob("*") if path.is_file() and path.name != SEAL)
