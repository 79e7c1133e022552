"""The journal of a run as one file, from which a home that never trained it restores the run."""

import gzip
import io
import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcpo_cli.errors import StoreError
from mcpo_cli.redaction import redact
from mcpo_cli.runs.journal import read_json, writing

NAME = "journal.tar.gz"
KEPT = re.compile(r"\w+\.json|attempt_\d+/(\w+\.jsonl?|\w+/step_\d+\.jsonl)")
"""The files of a run, from its folder: records and rows; no checkpoints, no policy, no logs."""


def pack(run_dir: Path) -> bytes:
    """The records and rows of a run; equal ones make equal bytes."""
    names = {path.relative_to(run_dir).as_posix(): path for path in run_dir.rglob("*.json*")}
    content = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=content, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, path in sorted(names.items()):
            if KEPT.fullmatch(name):
                data = document(path).encode() if path.suffix == ".json" else path.read_bytes()
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return content.getvalue()


def unpack(content: bytes, folder: Path) -> None:
    """Write the files of `pack` into `folder`.

    Raises:
        StoreError: this is no such archive, or one with other files in it; nothing was written.
        RunFailed: the disk takes no more.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
            members = tar.getmembers()
            if strange := [one.name for one in members if not (one.isfile() and KEPT.fullmatch(one.name))]:
                raise StoreError(f"{NAME} has a file in it that is none of a journal: {strange[0]!r}")
            # Not `extractall`: its filters came with Python 3.11.4. A name that is KEPT leads nowhere else.
            files = {one.name: file.read() for one in members if (file := tar.extractfile(one))}
    except (tarfile.TarError, EOFError, OSError) as error:
        raise StoreError(f"{NAME} cannot be read: {error}") from error
    with writing(folder):
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


def document(path: Path) -> str:
    """A JSON document of a run without the secrets that its texts may hold; as it is, where there are none."""
    data = read_json(path)
    cleaned = _cleaned(data)
    return path.read_text(encoding="utf-8") if cleaned == data else json.dumps(cleaned, indent=2)


def _cleaned(data: Any) -> Any:
    if isinstance(data, str):
        return redact(data)
    if isinstance(data, Mapping):
        return {key: _cleaned(value) for key, value in data.items()}
    return [_cleaned(value) for value in data] if isinstance(data, list) else data
