"""The home folder with all results: runs/, cache/, reports/, mlflow.db; errors of writing.

MCPO_HOME names it. By default it is the folder `mcpo-results` in the current folder. A current folder that already has
runs or evaluations is the home itself, because it used to be the default.
"""

import errno
import fcntl
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcpo_cli import paths
from mcpo_cli.errors import ConfigError, RunFailed

FIX = "MCPO_HOME=~/mcpo mcpo ..."
DEFAULT = "mcpo-results"
OLD = ("runs/*/spec.json", "evals/*/gradings")
"""Files that only a home has."""
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""Errors of `flock` and `lockf` on file systems without locks."""
SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")
"""An errno in the messages of Rust libraries (safetensors)."""


def location() -> Path:
    """MCPO_HOME, or else the default folder. Does not create it.

    Raises:
        ConfigError: no folder can have that name, or it is below a file or in a folder that was removed.
    """
    setting = os.environ.get("MCPO_HOME")
    try:
        if not setting:
            is_home = any(True for pattern in OLD for _ in Path().glob(pattern))
            setting = "." if is_home else DEFAULT
        path = paths.named(setting).resolve()
    except ConfigError as error:
        raise ConfigError(f"MCPO_HOME: {error.message}", fix=FIX, code="not_found") from error
    except OSError as error:
        raise ConfigError(f"MCPO_HOME={setting} is not a folder: {error}", fix=FIX, code="not_found") from error
    ancestor = next(part for part in (path, *path.parents) if part.exists())
    if not ancestor.is_dir():
        raise ConfigError(f"MCPO_HOME={setting}: {ancestor} is not a folder", fix=FIX, code="not_found")
    return path


def home() -> Path:
    """The folder that holds all results; created if missing, with a message unless MCPO_HOME names it.

    Raises:
        ConfigError: the folder cannot be created or written, or its file system has no locks.
    """
    path = location()
    if not path.exists() and not os.environ.get("MCPO_HOME"):
        sys.stderr.write(f"results go to {path} (MCPO_HOME=FOLDER puts them elsewhere)\n")
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".mcpo-write-test-{os.getpid()}"
        try:
            with probe.open("xb") as file:
                # MLflow's store (SQLite) is locked by `lockf`, runs by `flock`; a file system may lack one of the two.
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.lockf(file, fcntl.LOCK_UN)
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in WITHOUT_LOCKS:
            raise ConfigError(
                f"MCPO_HOME={path}: this file system has no locks ({error.strerror}), which keep two processes "
                "from one run or database",
                fix=f"{FIX}  (a folder on a local disk, or on one that is mounted with locks)",
                code="cannot_write",
            ) from error
        raise ConfigError(
            f"MCPO_HOME={path} cannot be written ({error.strerror})", fix=FIX, code="cannot_write"
        ) from error
    return path


def is_plain(name: str) -> bool:
    """True if an untrusted `name` is a plain file name, which cannot point to another folder."""
    return Path(name).name == name and name not in ("", "..")


def run_dir(run_id: str) -> Path:
    """The folder of one run, whether it exists or not."""
    return home() / "runs" / run_id


def gone_meanwhile(path: Path) -> RunFailed:
    """The error for a file or folder that somebody removed while it was in use."""
    return RunFailed(
        f"{path} was removed while it was being written",
        fix="repeat the same command: it starts again from the remaining records",
        code="damaged",
    )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a system error about writing `path` into an error with a fix.

    Raises:
        RunFailed: `path` could not be written.
    """
    try:
        yield
    except Exception as error:
        match = SYSTEM_ERROR.search(str(error))
        number = error.errno if isinstance(error, OSError) else int(match[1]) if match else None
        if number is None:
            raise
        if number == errno.ENOENT:
            raise gone_meanwhile(path) from error
        raise RunFailed(
            f"{path} cannot be written: {os.strerror(number)}",
            fix="make room on that disk, or make it writable; the same command continues from the last checkpoint",
            code="cannot_write",
        ) from error
