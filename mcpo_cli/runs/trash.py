"""The trash of a home, `trash/`: runs that were deleted, until it is emptied."""

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from mcpo_cli.errors import ConfigError
from mcpo_cli.home import writing
from mcpo_cli.runs import attempts, catalog
from mcpo_cli.runs.catalog import TRASH


def delete(home: Path, names: Sequence[str]) -> list[Path]:
    """Move runs, by ids or the beginnings of ids, to the trash; returns their folders there.

    A run replaces one of the same id in the trash. Runs of other versions and damaged ones can be deleted.

    Raises:
        ConfigError: no run matches a word, or several do. Nothing was moved.
        Busy: a process works on a run.
    """
    moved = []
    for folder in dict.fromkeys([catalog.folder(home, word) for word in names]):
        with attempts.owned(folder):
            shutil.rmtree(home / TRASH / folder.name, ignore_errors=True)
            moved.append(_move(folder, home / TRASH / folder.name))
    return moved


def restore(home: Path, names: Sequence[str]) -> list[Path]:
    """Move runs back from the trash, by ids or the beginnings of ids; returns their folders.

    Raises:
        ConfigError: the trash has no such run, or it was trained again meanwhile. Nothing was moved.
    """
    folders, trash = {path.name: path for path in contents(home)}, home / TRASH
    if not folders:
        raise ConfigError(f"nothing is in {trash}", fix="mcpo runs list", code="unknown_name")
    listing = shlex.join(["ls", str(trash)])
    ids = dict.fromkeys([catalog.matching(word, folders, trash, listing) for word in names])
    for run_id in ids:
        if (home / "runs" / run_id).exists():
            raise ConfigError(f"{run_id} was trained again and is not overwritten", fix=f"mcpo runs delete {run_id}")
    return [_move(folders[run_id], home / "runs" / run_id) for run_id in ids]


def contents(home: Path) -> list[Path]:
    """The folders of the runs in the trash, by name."""
    return sorted(path for path in (home / TRASH).glob("*") if path.is_dir())


def empty(home: Path) -> list[Path]:
    """Remove the contents of the trash for good; returns the folders that were in it.

    Raises:
        RunFailed: a file cannot be removed.
    """
    folders = contents(home)
    for folder in folders:
        with writing(folder):
            shutil.rmtree(folder)
    return folders


def _move(folder: Path, to: Path) -> Path:
    with writing(to):
        to.parent.mkdir(parents=True, exist_ok=True)
        return folder.rename(to)
