"""Standard output and standard error of a command, which notice a failure at once."""

import os
from pathlib import Path
from typing import Any

from mcpo_cli.errors import OutputLost


class Output:
    """`sys.stdout` or `sys.stderr` of a command; every write is flushed, so that a failure is noticed at once.

    stdout carries results: if it cannot be written, the command fails (OutputLost). stderr carries messages and
    progress: if it cannot be written, work goes on, because training must not end when its terminal closes.
    """

    def __init__(self, file: Any, *, fails: bool) -> None:
        # Python has None for a file that was closed before it began.
        self._file = file or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (lasts as long as the process)
        self._fails = fails
        self._lost: BaseException | None = None
        """The first failure: a library that probes the file may have swallowed it."""
        if hasattr(file, "reconfigure"):
            # A terminal without UTF-8, or a file name that is not UTF-8, must not end a command.
            file.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        """Write `text` and flush."""
        if self._lost:
            raise self._lost
        try:
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            # Python writes what is still buffered when it exits: send it nowhere.
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), self._file.fileno())
            if self._fails and isinstance(error, BrokenPipeError):
                # The reader, such as `head`, has seen enough.
                self._lost = SystemExit(OutputLost.exit_code)
            elif self._fails:
                fix = "the same command with > FILE, on a disk with room"
                self._lost = OutputLost(f"standard output cannot be written: {error.strerror}", fix=fix)
            if self._lost:
                raise self._lost from error
        return len(text)

    def flush(self) -> None:
        """Nothing: every write is flushed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
