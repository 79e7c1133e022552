"""Packs the journal of a run into one file, from which another home can restore the run."""

import gzip
import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mcpo_cli.errors import StoreError
from mcpo_cli.redaction import redact
from mcpo_cli.runs.journal import read_json, writing

NAME = "journal.tar.gz"
KEPT = re.compile(r"\w+\.json|attempt_\d+/(\w+\.jsonl?|\w+/step_\d+\.jsonl)")
"""Paths, relative to the run folder, that are archived: records and rows, but no checkpoints, policies or logs."""


def pack(run_dir: Path) -> bytes:
    """A tar archive of the run's records and rows. Equal contents give equal bytes."""
    names = {path.relative_to(run_dir).as_posix(): path for path in run_dir.rglob("*.json*")}
    content = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=content, mode="wb", mtime=0, compresslevel=6) as zipped,
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
    """Write the files that `pack` archived into `folder`.

    Raises:
        StoreError: the archive is unreadable or holds unexpected files; nothing was written.
        RunFailed: the disk cannot be written.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
            members = tar.getmembers()
            if strange := [member.name for member in members if not (member.isfile() and KEPT.fullmatch(member.name))]:
                raise StoreError(f"{NAME} holds a file that does not belong to a journal: {strange[0]!r}")
            # `extractall` has safe filters only since Python 3.11.4. Names that match KEPT stay inside the folder.
            files = {member.name: file.read() for member in members if (file := tar.extractfile(member))}
    except (tarfile.TarError, EOFError, OSError) as error:
        raise StoreError(f"{NAME} cannot be read: {error}") from error
    with writing(folder):
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


def document(path: Path) -> str:
    """The text of a JSON document with secrets removed; unchanged if it holds none."""
    data = read_json(path)
    # Most documents hold no secret, and all of their text at once is searched a hundred times as fast as each string.
    text = "\n".join(_strings(data))
    return path.read_text(encoding="utf-8") if redact(text) == text else json.dumps(_cleaned(data), indent=2)


def _strings(data: Any) -> Iterator[str]:
    """All strings in `data` that `_cleaned` may change."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping | list):
        for value in data.values() if isinstance(data, Mapping) else data:
            yield from _strings(value)


def _cleaned(data: Any) -> Any:
    if isinstance(data, str):
        return redact(data)
    if isinstance(data, Mapping):
        return {key: _cleaned(value) for key, value in data.items()}
    return [_cleaned(value) for value in data] if isinstance(data, list) else data
