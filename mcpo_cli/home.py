"""The home folder MCPO_HOME (default: the current folder), which holds runs/, cache/, reports/ and mlflow.db."""

import os
from pathlib import Path

from mcpo_cli.errors import ConfigError

FIX = "MCPO_HOME=~/mcpo mcpo ..."


def location() -> Path:
    """MCPO_HOME, or else the current folder. Creates nothing.

    Raises:
        ConfigError: it lies in the home of a user who does not exist, below a file, or in a folder that was removed.
    """
    named = os.environ.get("MCPO_HOME") or "."
    try:
        path = Path(named).expanduser().resolve()
    except (RuntimeError, OSError) as error:
        raise ConfigError(f"MCPO_HOME={named} names no folder: {error}", fix=FIX, code="not_found") from error
    above = next(part for part in (path, *path.parents) if part.exists())
    if not above.is_dir():
        raise ConfigError(f"MCPO_HOME={named}: {above} is no folder", fix=FIX, code="not_found")
    return path


def home() -> Path:
    """The folder that holds all results; created if missing.

    Raises:
        ConfigError: the folder cannot be created or written.
    """
    path = location()
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".mcpo-write-test-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"MCPO_HOME={path} cannot be written ({error.strerror})", fix=FIX, code="cannot_write"
        ) from error
    return path


def is_plain(name: str) -> bool:
    """Whether an untrusted `name` is a plain file name, which cannot point to another folder."""
    return Path(name).name == name and name not in ("", "..")


def run_dir(run_id: str) -> Path:
    """The folder of one run, whether it exists or not."""
    return home() / "runs" / run_id
