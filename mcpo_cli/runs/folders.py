"""Folders that are written atomically, with checksums: checkpoints and policies."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpo_cli.errors import ConfigError, RunFailed
from mcpo_cli.home import writing
from mcpo_cli.runs.journal import Journal, checksum, read_json, sync, write_json

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """The state from which a run continues: `tensors` by file name, `step`, and the training stream's `cursor`."""

    step: int
    cursor: int
    tensors: Mapping[str, Mapping[str, Tensor]]


@contextmanager
def atomic_folder(final: Path, facts: Mapping[str, Any]) -> Iterator[Path]:
    """Yield a temporary folder to write to; at the end it becomes `final`, with `facts` in its manifest.

    Raises:
        RunFailed: the disk cannot be written; the temporary folder is removed, which frees room for the status.
    """
    part = final.with_name(f".{final.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with writing(final):
            part.mkdir(parents=True)
            yield part
            for path in part.iterdir():
                # Otherwise a checksum could survive a power cut in which its file is lost.
                sync(path)
            sums = {path.name: checksum(path) for path in sorted(part.iterdir())}
            write_json(part / MANIFEST, {**facts, "sha256": sums})
            shutil.rmtree(final, ignore_errors=True)
            sync(part)
            part.rename(final)
            sync(final.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def final_policy(run_dir: Path) -> Path | None:
    """The folder of a run's final policy, which its last attempt may lack; None if no attempt has written one."""
    policies = (attempt / "policy" for attempt in reversed(Journal(run_dir).attempts()))
    return next((policy for policy in policies if policy.is_dir()), None)


def copy_policy(policy: Path, target: Path) -> None:
    """Copy the files of a final policy to the folder `target`. Raises ConfigError if a file was changed."""
    check_policy(policy, "exported")
    for path in policy.iterdir():
        if path.name != MANIFEST:
            shutil.copyfile(path, target / path.name)


def check_policy(policy: Path, purpose: str) -> None:
    """Raise ConfigError if a run's final policy does not match its stored checksums, if it has any.

    purpose: completes the message "the policy is not ...", as in "evaluated".
    """
    if (policy / MANIFEST).exists() and (problem := damage(policy)):
        raise ConfigError(
            f"{problem}: the policy changed after training and is not {purpose}",
            fix=f"rm -r {policy.parent.parent}  (then train the run again with the same command)",
            code="damaged",
        )


def damage(folder: Path) -> str | None:
    """The damage of a folder that `atomic_folder` wrote; None if it is intact."""
    try:
        for name, digest in read_json(folder / MANIFEST)["sha256"].items():
            if not (folder / name).exists():
                return f"{folder / name} is gone"
            if checksum(folder / name) != digest:
                return f"{folder / name} is damaged: its checksum does not match"
    except (RunFailed, OSError, KeyError) as error:
        return error.message if isinstance(error, RunFailed) else f"{folder / MANIFEST} cannot be read"
    return None


def checkpoints(run_dir: Path) -> dict[int, Path]:
    """The folders of all complete checkpoints of a run of backend=local by their steps, oldest first.

    Checkpoints after the step that a later attempt began from are void, like the rows after it.
    """
    folders: dict[int, Path] = {}
    for attempt, last in Journal(run_dir).spans():
        for path in (attempt / "checkpoints").glob("step_*"):
            if (step := _step_of(path)) <= last and _is_complete(path, run_dir.name):
                folders[step] = path
    return dict(sorted(folders.items()))


def load(checkpoint: Path) -> Checkpoint:
    """Read a checkpoint, one of `checkpoints`.

    Raises:
        RunFailed: another command removed it since.
    """
    from safetensors.torch import load_file  # not above: most commands do without torch

    with unless_removed(checkpoint):
        manifest = read_json(checkpoint / MANIFEST)
        tensors = {name.removesuffix(".safetensors"): load_file(checkpoint / name) for name in manifest["sha256"]}
    return Checkpoint(manifest["step"], manifest["cursor"], tensors)


def prune(run_dir: Path, count: int) -> None:
    """Remove all checkpoints of a run but the newest `count`: also of killed attempts, and also partial ones."""
    valid, leftovers = list[Path](), list[Path]()
    for attempt, last in Journal(run_dir).spans():
        leftovers += (attempt / "checkpoints").glob(".step_*.part")
        for folder in (attempt / "checkpoints").glob("step_*"):
            (valid if _step_of(folder) <= last else leftovers).append(folder)
    valid.sort(key=_step_of)
    for folder in [*leftovers, *valid[: max(0, len(valid) - count)]]:
        shutil.rmtree(folder)


def copy_checkpoint(run_dir: Path, step: int, attempt_dir: Path, without: Collection[str]) -> None:
    """Copy the checkpoint of `step`, one of `checkpoints`, to an attempt of another run.

    without: names of the files to leave out, without their suffix.

    Raises:
        RunFailed: the disk cannot be written, or another command removed the checkpoint.
    """
    source = checkpoints(run_dir)[step]
    with unless_removed(source):
        manifest = read_json(source / MANIFEST)
        facts = {"run_id": attempt_dir.parent.name, "step": step, "cursor": manifest["cursor"]}
        with atomic_folder(attempt_dir / "checkpoints" / source.name, facts) as part:
            for name in manifest["sha256"]:
                if Path(name).stem not in without:
                    shutil.copyfile(source / name, part / name)


@contextmanager
def unless_removed(checkpoint: Path) -> Iterator[None]:
    """Turn the absence of a file of `checkpoint` into RunFailed with a fix."""
    try:
        yield
    except FileNotFoundError as error:
        raise RunFailed(
            f"{checkpoint} was removed while this command used it: another one trains or measures the same run",
            fix="wait until that one has ended, then repeat this one",
        ) from error


def _step_of(checkpoint: Path) -> int:
    """The global step that a checkpoint was written after, from the name of its folder."""
    return int(checkpoint.name.removeprefix("step_"))


def _is_complete(checkpoint: Path, run_id: str) -> bool:
    problem = damage(checkpoint)
    if not problem and (owner := read_json(checkpoint / MANIFEST).get("run_id", run_id)) != run_id:
        problem = f"{checkpoint} is a checkpoint of {owner}"
    if problem:
        print(f"{problem}; this checkpoint is skipped", file=sys.stderr)
    return not problem
