"""Errors of the disk, in words."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcpo_cli.errors import RunFailed

SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")
"""An errno in the messages of Rust libraries (safetensors)."""


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
        raise RunFailed(
            f"{path} cannot be written: {os.strerror(number)}",
            fix="make room on that disk, or make it writable; the same command continues from the last checkpoint",
        ) from error
