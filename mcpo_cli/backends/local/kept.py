"""Which checkpoints a run keeps, without torch: their folders, and the steps that they were written after."""

import sys
from pathlib import Path

from mcpo_cli.runs import folders
from mcpo_cli.runs.journal import Journal, read_json


def whole(run_dir: Path) -> list[Path]:
    """The folders of all whole checkpoints of the run, one a step, oldest first.

    Those that a later attempt began before are void, as the rows up to them are.
    """
    found: dict[int, Path] = {}
    for attempt, last in Journal(run_dir).spans():
        for path in (attempt / "checkpoints").glob("step_*"):
            if (step := int(path.name.removeprefix("step_"))) <= last and _is_whole(path, run_dir.name):
                found[step] = path
    return [found[step] for step in sorted(found)]


def at(run_dir: Path, step: int) -> Path:
    """The folder of the checkpoint of `step`, one of those `whole`."""
    return next(folder for folder in whole(run_dir) if step_of(folder) == step)


def step_of(folder: Path) -> int:
    """The global step that a checkpoint was written after."""
    return int(read_json(folder / folders.MANIFEST)["step"])


def _is_whole(folder: Path, run_id: str) -> bool:
    problem = folders.damage(folder)
    if not problem and (other := read_json(folder / folders.MANIFEST).get("run_id", run_id)) != run_id:
        problem = f"{folder} is a checkpoint of {other}"
    if problem:
        print(f"{problem}; this checkpoint is skipped", file=sys.stderr)
    return not problem
