"""Packs the journal of a run into one file, from which another home can restore the run.

What a store holds may be anybody's: an archive that unpacks to far more than a journal can be is refused while it is
read, whatever its headers say.
"""

import gzip
import io
import json
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from mcpo_cli.config import load
from mcpo_cli.errors import StoreError
from mcpo_cli.home import writing
from mcpo_cli.redaction import redact
from mcpo_cli.runs import attempts
from mcpo_cli.runs.journal import read_json

NAME = "journal.tar.gz"
KEPT = re.compile(r"\w+\.json|attempt_\d+/(\w+\.jsonl?|\w+/step_\d+\.jsonl)")
"""Paths, relative to the run folder, that are archived: records and rows, but no checkpoints, policies or logs."""


MOST_RATIO = 100
"""Bytes unpacked for a byte packed; records and rows give 5 to 20, zeros a thousand."""
LEAST_LIMIT = 1 << 20
"""Bytes that any archive may unpack to: tar pads each of its files."""
CHUNK = 1 << 16


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
        StoreError: the archive is unreadable, too large or holds unexpected files; nothing was written.
        RunFailed: the disk cannot be written.
    """
    # Read twice, so that all of it is known to be in order before anything is written, and memory holds one file.
    for _, file in _files(content):
        while file.read(CHUNK):
            pass
    with writing(folder):
        for name, file in _files(content):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with (folder / name).open("wb") as target:
                shutil.copyfileobj(file, target)


def restore(content: bytes, run_id: str, folder: Path) -> Path:
    """Write the journal of the done run `run_id` into `folder`, which is returned.

    Raises:
        StoreError: see `unpack`; or the journal belongs to another run, or to one that is not done.
        ConfigError: another version wrote it.
        RunFailed: it is damaged, or the disk cannot be written.
    """
    unpack(content, folder)
    if not (folder / "spec.json").exists():
        raise StoreError(f"{NAME} holds no settings")
    spec = load.from_dict(read_json(folder / "spec.json"))
    if spec.run_id != run_id or attempts.state(folder, spec) != "done":
        raise StoreError("its journal belongs to another run, or to a run that is not done")
    return folder


def _files(content: bytes) -> Iterator[tuple[str, IO[bytes]]]:
    """The files of an archive, each readable until the next; see `unpack` for errors."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as unzipped:
            bounded: Any = _Bounded(unzipped, max(LEAST_LIMIT, MOST_RATIO * len(content)))
            # `extractall` has safe filters only since Python 3.11.4. Names that match KEPT stay inside the folder.
            with tarfile.open(fileobj=bounded, mode="r|") as tar:
                for member in tar:
                    bounded.check(member.size)
                    file = tar.extractfile(member) if member.isfile() and KEPT.fullmatch(member.name) else None
                    if file is None:
                        raise StoreError(f"{NAME} holds a file that does not belong to a journal: {member.name!r}")
                    yield member.name, file
            while bounded.read(CHUNK):  # to its end, where its checksum stands
                pass
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise StoreError(f"{NAME} cannot be read: {error}") from error


class _Bounded:
    """A binary file of which only so many bytes can be read."""

    def __init__(self, file: gzip.GzipFile, most: int) -> None:
        self._file, self._left = file, most

    def read(self, size: int) -> bytes:
        """The next bytes. Raises StoreError beyond the limit."""
        data = self._file.read(size)
        self.check(len(data))
        self._left -= len(data)
        return data

    def check(self, size: int) -> None:
        """Raises StoreError if the limit leaves no room for `size` more bytes, or `size` is below 0."""
        if not 0 <= size <= self._left:
            raise StoreError(f"{NAME} unpacks to more than {MOST_RATIO} times its size: it is no journal")


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
