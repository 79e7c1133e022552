"""Every process of a run, Ray's and vLLM's among them: each inherits a variable that names the run."""

import os
import time
from contextlib import suppress

import psutil

MARK = "MCPO_VERL_RUN"
GRACE_SECONDS = 3.0
LAST_SECONDS = 30.0
"""What still lives after this hangs in the kernel, and nobody can end it."""


def marked(name: str) -> list[psutil.Process]:
    """All processes of the run `name` but this one."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == name:
                found.append(process)
        except psutil.Error:
            continue  # it ended, or is not ours
    return found


def end(name: str) -> None:
    """End all of them: asked first, then killed; again, because what dies last may have started another."""
    deadline = time.monotonic() + GRACE_SECONDS
    for process in marked(name):
        with suppress(psutil.Error):
            process.terminate()
    while (left := marked(name)) and time.monotonic() < deadline + LAST_SECONDS:
        if time.monotonic() > deadline:
            for process in left:
                with suppress(psutil.Error):
                    process.kill()
        time.sleep(0.1)
