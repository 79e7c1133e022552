"""Bundles: the records of done runs in one compressed tar, to give to somebody else.

A bundle may come from anybody. Each file is written only below a temporary folder, after its name and size have been
checked, and becomes part of a run only once settings, checksums and state have been checked, too.
"""

import gzip
import re
import tarfile
import zlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from mcpo_cli.errors import ConfigError, McpoError, RunFailed
from mcpo_cli.home import writing
from mcpo_cli.runs import attempts, catalog
from mcpo_cli.runs.journal import SUMS, Journal, damaged, document, numbered, read_json, write_atomic

ROWS = r"\w+\.jsonl|\w+/step_\d+\.jsonl"
RECORD = re.compile(rf"\w+\.json|attempt_\d+/(\w+\.json|{ROWS})")
"""Paths, relative to a run's folder, that a bundle holds: records and rows, but no checkpoints, policies or logs."""
MEMBER = re.compile(rf"[\w+-][\w.+-]*/({RECORD.pattern})")
MOST_RATIO, LEAST_LIMIT = 100, 1 << 20
"""Largest compression ratio (records have 5 to 20, zeros a thousand), and bytes that are allowed at any ratio."""


def write(folders: Sequence[Path], file: Path) -> None:
    """Write the records of the runs in `folders` into `file`. Equal records give equal bytes.

    Raises:
        RunFailed: the disk cannot be written.
    """
    content = BytesIO()
    with gzip.GzipFile(fileobj=content, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as bundle:
        for folder in folders:
            for name, data in _records(folder).items():
                member = tarfile.TarInfo(f"{folder.name}/{name}")
                member.size = len(data)
                bundle.addfile(member, BytesIO(data))
    write_atomic(file, content.getvalue())


def restore(file: Path, home: Path) -> tuple[list[str], list[str]]:
    """Restore the runs of a bundle in `home`: all of them, or none.

    Returns:
        The ids of the restored runs, and of runs that exist already with the same records.

    Raises:
        ConfigError: the file is not a bundle, a run in it is damaged or not done, or exists with other records.
        RunFailed: the disk cannot be written.
    """
    (home / "runs").mkdir(exist_ok=True)
    with attempts.scratch(home, ".unbundle-") as temporary:
        folders = _extract(file, temporary / "runs")
        for folder in folders:
            try:
                _check(folder)
            except (McpoError, LookupError, TypeError, ValueError, AttributeError) as error:
                message = error.message if isinstance(error, McpoError) else f"its records are damaged: {error}"
                raise ConfigError(f"{file}: {folder.name}: {message.replace(f'{temporary}/', '')}") from error
        targets = {folder: home / "runs" / folder.name for folder in folders}
        duplicates = [folder for folder, target in targets.items() if target.exists()]
        if differing := [folder.name for folder in duplicates if _records(folder) != _records(targets[folder])]:
            raise ConfigError(
                f"nothing is restored: {home / 'runs'} has other records of {', '.join(differing)}",
                fix=f"MCPO_HOME=OTHER_FOLDER mcpo runs unbundle {file}",
            )
        new = [folder for folder in folders if folder not in duplicates]
        with writing(home / "runs"):
            for folder in new:
                folder.rename(targets[folder])
    return [folder.name for folder in new], [folder.name for folder in duplicates]


def _records(folder: Path) -> dict[str, bytes]:
    """Name -> content of the records of a run, in order; secrets are removed from JSON documents."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.json*")}
    return {
        name: document(path).encode() if path.suffix == ".json" else path.read_bytes()
        for name, path in sorted(paths.items())
        if RECORD.fullmatch(name)
    }


def _extract(file: Path, target: Path) -> list[Path]:
    """Write the members of a bundle below `target`; returns the folders of its runs. Raises ConfigError, RunFailed."""
    no_bundle = f"{file} is no bundle of runs"
    try:
        room = max(LEAST_LIMIT, MOST_RATIO * file.stat().st_size)
        with tarfile.open(file, "r:gz") as bundle, writing(target):
            for member in bundle:
                path = target / member.name
                if not member.isreg() or not MEMBER.fullmatch(member.name) or path.exists():
                    raise ConfigError(f"{no_bundle}: it holds {member.name!r}")
                room -= member.size + tarfile.BLOCKSIZE
                if room < 0:
                    raise ConfigError(f"{no_bundle}: it unpacks to more than {MOST_RATIO} times its size")
                bundle.extract(member, target, set_attrs=False, filter="data")
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"{file} cannot be read: {why}", fix="mcpo runs bundle SUITE FILE") from error
    except (tarfile.TarError, zlib.error, EOFError, ValueError) as error:
        raise ConfigError(f"{no_bundle}: {error}", fix="mcpo runs bundle SUITE FILE") from error
    if not target.exists():
        raise ConfigError(f"{no_bundle}: it is empty")
    return sorted(target.iterdir())


def _check(folder: Path) -> None:
    """Raise RunFailed or ConfigError unless the records are of a complete, done run of the folder's name."""
    spec = catalog.find(folder.parents[1], folder.name).spec
    sums = [attempt / SUMS for attempt in numbered(folder) if (attempt / SUMS).exists()]
    if wrong := [name for path in sums for name in read_json(path) if not re.fullmatch(ROWS, name)]:
        raise damaged(folder, f"damaged: its checksums are of {wrong[0]!r}, which is no file of rows")
    Journal(folder).check_all()
    if attempts.state(folder, spec) != "done":
        raise RunFailed("its records are not those of a run that is done")
