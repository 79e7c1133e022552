"""A worker as the scheduler sees it, and the one that runs on this machine."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Worker(Protocol):
    """A process that trains one run, wherever it is. pid: of that process, known at its end at the latest."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code, None while it has not ended."""
        ...

    def stop(self) -> None:
        """Ask it to write a checkpoint and end."""
        ...

    def kill(self) -> None:
        """End it now."""
        ...


class LocalWorker:
    """A process on this machine, in a session of its own."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._process = begin(command, environment, log)
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """See `Worker`."""
        return self._process.poll()

    def stop(self) -> None:
        """See `Worker`."""
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """The process and all it started."""
        os.killpg(self.pid, signal.SIGKILL)


def begin(command: Sequence[str], environment: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
    """Start `command` with `environment` on top of this process's own; what it prints is appended to `log`."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [*command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            # Ctrl-C in a terminal reaches the scheduler alone, which passes it on once.
            start_new_session=True,
        )
