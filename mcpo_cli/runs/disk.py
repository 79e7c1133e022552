"""Errors of the disk, in words."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcpo_cli.errors import RunFailed

SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")
"""An errno in the messages of Rust libraries (safetensors)."""


def gone_meanwhile(path: Path) -> RunFailed:
    """The error for a file or folder that somebody removed while it was in use."""
    return RunFailed(
        f"{path} was removed while it was being written",
        fix="repeat the same command: it begins again with what is left",
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
