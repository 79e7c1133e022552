"""Processes beside this one, for work that only hands back little: drawing, which takes as long as computing does."""

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
"""Processes: what they draw is computed by one."""


def helpers() -> Executor:
    """Processes on the other cores; a context manager. They end with this one, also where it is killed.

    loky's: they are sent what `pickle` cannot send, such as the functions in a figure, and need no `__main__`.
    """
    most = min(MOST, max(1, cores() - 1))
    pool: Executor = ProcessPoolExecutor(most, initializer=_end_with, initargs=(os.getpid(),))
    return pool


def _end_with(parent: int) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def outcome(make: Callable[[], Made]) -> Made | McpoError:
    """What `make` gives, or the error that it ends in, the end of a helper among them."""
    try:
        return make()
    except McpoError as error:
        return error
    except BrokenExecutor as error:
        return RunFailed(f"a process that draws was killed: {first_line(error)}", fix="more memory, and once more")
