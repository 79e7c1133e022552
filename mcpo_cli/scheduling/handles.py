"""The scheduler's interface to a worker process, and its implementation on this machine."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Worker(Protocol):
    """A process that trains one run, on any machine."""

    pid: int
    """Its process id, known at the latest when it has ended; 0 until then."""

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        ...

    def stop(self) -> None:
        """Ask it to write a checkpoint and exit."""
        ...

    def kill(self) -> None:
        """Kill it at once."""
        ...


class LocalWorker:
    """A process on this machine, in its own session."""

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
        """Kill the process and all that it started."""
        os.killpg(self.pid, signal.SIGKILL)


def begin(command: Sequence[str], environment: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
    """Start `command` with `environment` added to this process's own; append its output to `log`."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [*command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            # In its own session, it gets Ctrl-C only through the scheduler, once.
            start_new_session=True,
        )
