"""Helper processes that draw figures while this process computes the next."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor
from typing import TypeVar

from loky import ProcessPoolExecutor

from mcpo_cli.errors import McpoError, RunFailed, first_line
from mcpo_cli.machine import cores

Made = TypeVar("Made")
MOST = 3
"""Most helper processes: one process computes what they draw, so more would idle."""


def helpers() -> Executor:
    """A context manager with helper processes, one a core; they exit with this process, even if it is killed.

    Drawing takes twice as long as computing what is drawn, which is why this process's core gets one as well.
    loky runs them: it can send what `pickle` cannot, such as the functions in a figure, and needs no `__main__`.
    """
    most = min(MOST, cores())
    pool: Executor = ProcessPoolExecutor(most, initializer=_end_with, initargs=(os.getpid(),))
    return pool


def _end_with(parent: int) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def outcome(make: Callable[[], Made]) -> Made | McpoError:
    """The result of `make`, or the error that it raises; a killed helper process counts as one."""
    try:
        return make()
    except McpoError as error:
        return error
    except BrokenExecutor as error:
        return RunFailed(f"a helper process was killed: {first_line(error)}", fix="free some memory, then try again")
