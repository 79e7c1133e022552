"""Archives of runs that somebody else packed: refused before anything is written, in little memory."""

import gzip
import io
import resource
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpo_cli.errors import StoreError
from mcpo_cli.store import archive


def packed(name: str, zeros: int = 0, kind: bytes = tarfile.REGTYPE, target: str = "", **headers: str) -> bytes:
    """An archive with one member."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo(name)
        member.size, member.type, member.linkname, member.pax_headers = zeros, kind, target, headers
        tar.addfile(member, io.BytesIO(bytes(zeros)))
    return content.getvalue()


GOOD = packed("spec.json", 10)
ARCHIVES: dict[str, Callable[[], bytes]] = {
    "200 MiB of zeros": lambda: packed("attempt_1/metrics.jsonl", 200 << 20),
    "a cut end": lambda: GOOD[:-6],
    "a wrong checksum": lambda: GOOD[:-8] + bytes(8),
    "no archive in it": lambda: gzip.compress(b"\xff" * 4096),
    "a broken stream": lambda: GOOD[:12] + b"\xff" * 40,
    "a path above its folder": lambda: packed("../spec.json"),
    "an absolute path": lambda: packed("/tmp/spec.json"),
    "a path with parents in it": lambda: packed("attempt_1/../../../spec.json"),
    "a symbolic link": lambda: packed("spec.json", 0, tarfile.SYMTYPE, "/etc/passwd"),
    "a hard link": lambda: packed("spec.json", 0, tarfile.LNKTYPE, "../../outside.json"),
    "a folder that is a link": lambda: packed("attempt_1", 0, tarfile.SYMTYPE, ".."),
    "a pipe": lambda: packed("spec.json", 0, tarfile.FIFOTYPE),
    "a file that is not a record": lambda: packed("run.sh"),
}


@pytest.mark.parametrize("make", ARCHIVES.values(), ids=ARCHIVES)
def test_archives(make: Callable[[], bytes], tmp_path: Path) -> None:
    content = make()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(StoreError):
        archive.unpack(content, tmp_path / "home" / "run")
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10 <= 64
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
