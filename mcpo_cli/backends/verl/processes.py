"""The processes of a run of verl, Ray's and vLLM's included: found by a variable that all inherit, and ended."""

import os
import time
from contextlib import suppress

import psutil

MARK = "MCPO_VERL_RUN"
"""Environment variable that names the run; all its processes, Ray's and vLLM's included, inherit it."""
GRACE_SECONDS = 3.0
"""Seconds between SIGTERM and SIGKILL."""
LAST_SECONDS = 30.0
"""Seconds after which to give up on processes that survive SIGKILL, because they hang in the kernel."""


def marked(name: str) -> list[psutil.Process]:
    """All processes of the run `name` except this one."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == name:
                processes.append(process)
        except psutil.Error:
            continue  # it ended, or belongs to another user
    return processes


def end(name: str) -> None:
    """End all processes of the run `name`: SIGTERM, then SIGKILL until all are dead: dying ones may start others."""
    deadline = time.monotonic() + GRACE_SECONDS
    for process in marked(name):
        with suppress(psutil.Error):
            process.terminate()
    while (survivors := marked(name)) and time.monotonic() < deadline + LAST_SECONDS:
        if time.monotonic() > deadline:
            for process in survivors:
                with suppress(psutil.Error):
                    process.kill()
        time.sleep(0.1)
