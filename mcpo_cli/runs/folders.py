"""Folders of files (checkpoints, policies) that are there whole, with checksums of what is in them, or not at all."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcpo_cli.errors import RunFailed
from mcpo_cli.runs.journal import checksum, read_json, write_json, writing

MANIFEST = "manifest.json"


@contextmanager
def whole(final: Path, about: Mapping[str, Any]) -> Iterator[Path]:
    """Yields the folder to write the files to; at the end it becomes `final`, with `about` in its manifest.

    Raises:
        RunFailed: the disk takes no more; nothing is left behind, as the room is needed to say so.
    """
    part = final.with_name(f".{final.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with writing(final):
            part.mkdir(parents=True)
            yield part
            for path in part.iterdir():
                _sync(path)
            sums = {path.name: checksum(path) for path in sorted(part.iterdir())}
            write_json(part / MANIFEST, {**about, "sha256": sums})
            shutil.rmtree(final, ignore_errors=True)
            part.rename(final)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _sync(path: Path) -> None:
    """Have a file on the disk itself: a checksum must not outlive a power cut that its file does not."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def damage(folder: Path) -> str | None:
    """What is wrong with a folder that `whole` wrote, None where nothing is."""
    try:
        for name, written in read_json(folder / MANIFEST)["sha256"].items():
            if not (folder / name).exists():
                return f"{folder / name} is gone"
            if checksum(folder / name) != written:
                return f"{folder / name} is damaged: its checksum is not the one that it was written with"
    except (RunFailed, OSError, KeyError) as error:
        return error.message if isinstance(error, RunFailed) else f"{folder / MANIFEST} cannot be read"
    return None
