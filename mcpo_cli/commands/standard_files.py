"""Standard input, output and error of a command: closed ones are replaced, a failure to write is told or passed over.

stdout carries results: if it cannot be written, the command fails. stderr carries messages and progress: if it cannot
be written, work goes on, because training must not end with the terminal that shows it.
"""

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO

from mcpo_cli.errors import OutputLost

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys instead of showing them; tab and line feed are harmless."""


def visible(text: str) -> str:
    r"""`text` with control characters spelled out, as in `\x1b`: records may come from others."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


@contextmanager
def standard_files() -> Iterator[None]:
    """Have `sys.stdout` and `sys.stderr` behave as described above, for the time of the block.

    Raises:
        OutputLost: stdout could not be written; raised by the write itself.
    """
    _reopen()
    with (
        redirect_stdout(_File(sys.stdout or _opened(1), fails=True)),
        redirect_stderr(_File(sys.stderr or _opened(2), fails=False)),
    ):
        yield


def _reopen() -> None:
    """Open each closed standard file again. Otherwise the next file opened, such as a database, takes its number."""
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # Takes the lowest free number, which is this one. stdout cannot be written: its loss is to be noticed.
            os.open(os.devnull, flags)


def _opened(number: int) -> TextIO:
    return io.TextIOWrapper(io.FileIO(number, "w", closefd=False), write_through=True)


class _File:
    """A text file for `sys.stdout` or `sys.stderr`; every write is flushed, so that a failure is known at once."""

    def __init__(self, file: Any, *, fails: bool) -> None:
        self._file, self._fails = file, fails
        if hasattr(file, "reconfigure"):
            # A terminal without UTF-8, and names of files that are none, must not end a command.
            file.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        """Write `text` and flush."""
        try:
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            self._discard()
            if self._fails and isinstance(error, BrokenPipeError):
                # The reader, such as `head`, has seen enough.
                raise SystemExit(OutputLost.exit_code) from error
            if self._fails:
                fix = "the same command with > FILE, on a disk with room"
                raise OutputLost(f"standard output cannot be written: {error.strerror}", fix=fix) from error
        return len(text)

    def flush(self) -> None:
        """Nothing: every write is flushed."""

    def _discard(self) -> None:
        """Send the rest nowhere, because Python writes what is still buffered when it exits."""
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), self._file.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
