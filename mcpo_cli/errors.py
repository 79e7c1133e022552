"""The errors that users see, with their exit codes.

| class          | exit | meaning                                                        |
|----------------|------|----------------------------------------------------------------|
| `ConfigError`  | 2    | bad input: nothing was started                                 |
| `RunFailed`    | 1    | a run ended in an error; its records are kept, it can continue |
| `Findings`     | 1    | `data audit` or `doctor` found problems to fix first           |
| `MissingCells` | 3    | a table or figure needs runs that are not done                 |
| `StoreError`   | 4    | the MLflow store could not be read or written                  |
| `OutputLost`   | 1    | standard output cannot be written; records are not affected    |
| `Interrupted`  | 130  | stopped by a signal; it can continue                           |
| anything else  | 70   | a bug: `--debug` shows where                                   |

Only `mcpo_cli.main` turns an exception into an exit code; everything else raises.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

UNEXPECTED = 70
"""Exit code of any other error: EX_SOFTWARE of sysexits.h."""
SIMILAR = 0.6
"""The least similarity (of difflib, 0 to 1) at which a known name is offered in the place of an unknown one."""


class McpoError(Exception):
    """An error with a message for users: what is wrong, and (in `fix`) the command that fixes it.

    data: partial results as plain data, which `--json` prints with the error.
    """

    exit_code = 1

    def __init__(self, message: str, *, fix: str | None = None, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.data = data or {}

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.fix}" if self.fix else self.message


class ConfigError(McpoError):
    """The input names something that does not exist or contradicts itself; nothing was started."""

    exit_code = 2


class RunFailed(McpoError):
    """At least one run ended in an error; its records are kept and it can be continued."""


class Findings(McpoError):
    """A check of data or of the machine found problems to fix first; the report lists them."""


class MissingCells(McpoError):
    """A table or figure needs runs that are not done; the message names the command that completes them."""

    exit_code = 3


class StoreError(McpoError):
    """The MLflow store could not be reached, read or written after the start."""

    exit_code = 4


class OutputLost(McpoError):
    """Standard output could not be written: a full disk, a closed file, or a reader that has gone."""


class Interrupted(McpoError):
    """Stopped by SIGINT or SIGTERM after a checkpoint was written."""

    exit_code = 130


def nearest(wanted: str, known: Iterable[str]) -> str:
    """A hint "did you mean 'x'?", or all `known` names if none is close."""
    names = sorted(known)
    close = difflib.get_close_matches(wanted, names, n=1, cutoff=SIMILAR)
    if close:
        return f"did you mean '{close[0]}'?"
    return "one of: " + ", ".join(names)


def first_line(error: BaseException) -> str:
    """The first line of a library's error; if its message is empty, that of its cause, or else its class name."""
    if text := str(error).strip():
        return text.splitlines()[0]
    return first_line(error.__cause__) if error.__cause__ else type(error).__name__


def closest(wanted: str, known: Iterable[str]) -> str:
    """The name spelled most like `wanted`, however different, for use in a fix."""
    return difflib.get_close_matches(wanted, sorted(known), n=1, cutoff=0.0)[0]
