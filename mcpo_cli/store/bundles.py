"""Bundles: the journals of several done runs in one file, to be handed to somebody else.

A bundle is a tar of archives (`archive.py`), `RUN_ID.tar.gz` each. It may come from anybody: see there for limits.
"""

import io
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from mcpo_cli.errors import ConfigError, McpoError
from mcpo_cli.home import writing
from mcpo_cli.runs.journal import write_atomic
from mcpo_cli.store import archive

SUFFIX = ".tar.gz"


def write(folders: Sequence[Path], file: Path) -> None:
    """Write the journals of the runs in `folders` into `file`. Equal journals give equal bytes.

    Raises:
        RunFailed: the disk cannot be written.
    """
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for folder in folders:
            packed = archive.pack(folder)
            member = tarfile.TarInfo(f"{folder.name}{SUFFIX}")
            member.size = len(packed)
            tar.addfile(member, io.BytesIO(packed))
    write_atomic(file, content.getvalue())


def read(file: Path, home: Path) -> tuple[list[str], list[str]]:
    """Restore the runs of a bundle in `home`: all of them, or none.

    Returns:
        The ids of the restored runs, and of those that are there already with the same journal.

    Raises:
        ConfigError: the file is no bundle, or a run is there with another journal.
        RunFailed: the disk cannot be written.
    """
    (home / "runs").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix=".unbundle-") as folder:
        there, new, differing = list[str](), dict[str, Path](), list[str]()
        for number, (run_id, content) in enumerate(_archives(file)):
            try:
                restored = archive.restore(content, run_id, Path(folder) / str(number))
            except McpoError as error:
                raise ConfigError(f"{file}: {run_id}: {error.message}") from error
            own = home / "runs" / run_id
            if not own.exists():
                new[run_id] = restored
            elif archive.pack(own) == archive.pack(restored):
                there.append(run_id)
            else:
                differing.append(run_id)
        if differing:
            raise ConfigError(
                f"nothing is restored: {home / 'runs'} has other records of {', '.join(differing)}",
                fix=f"MCPO_HOME=OTHER_FOLDER mcpo runs unbundle {file}",
            )
        with writing(home / "runs"):
            for run_id, restored in new.items():
                restored.rename(home / "runs" / run_id)
    return list(new), there


def _archives(file: Path) -> Iterator[tuple[str, bytes]]:
    """Run id and archive of each run in a bundle. Raises ConfigError if the file is none."""
    try:
        with tarfile.open(file, "r:") as tar:
            for member in tar:
                # A sparse member says how large it is, whatever the size of the file.
                if not member.isreg() or member.issparse() or not member.name.endswith(SUFFIX):
                    raise ConfigError(f"{file} is no bundle of runs: it holds {member.name!r}")
                packed = tar.extractfile(member)
                assert packed
                yield member.name.removesuffix(SUFFIX), packed.read()
    except (tarfile.TarError, OSError, ValueError) as error:
        raise ConfigError(f"{file} is no bundle of runs: {error}", fix="mcpo runs bundle SUITE FILE") from error
