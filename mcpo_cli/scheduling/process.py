"""Worker processes on this machine: plain processes, and processes that a fork server starts.

Loading torch and transformers takes seconds of CPU time, as much as a short run. A fork server loads them once:
`python -m mcpo_cli.scheduling.process MODULE FD` imports MODULE and then forks a worker for each request. It has one
thread and computes nothing, so forking is safe on Linux; elsewhere (macOS) every worker is plain. It exits when the
scheduler is gone, even by SIGKILL, and its workers, whose parent it is, then stop. Python's own fork server does not
fit: its start waits until MODULE is loaded, every worker imports the caller's `__main__` (a script without a guard
would start its runs again), and all servers of a process have one environment.

Scheduler to server: `StartRequest`. Server to scheduler: `(run id, pid, None)` when a worker was forked,
`(run id, pid, exit code)` when it has ended; the code is negative for a signal.
"""

import gc
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, Protocol

from mcpo_cli.runs.provenance import parent_command
from mcpo_cli.scheduling.worker import work

POLL_SECONDS = 0.05
"""Time between two checks of the fork server on its workers."""


class Worker(Protocol):
    """A process that trains one run, on any machine."""

    pid: int
    """Its process id, known at the latest when it has ended; 0 until then."""

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""

    def stop(self) -> None:
        """Ask it to write a checkpoint and exit."""

    def kill(self) -> None:
        """Kill it, and on this machine all processes that it started."""


class LocalWorker:
    """A process on this machine, in its own session."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._process = begin(command, environment, log)
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
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
            # In its own session the process gets Ctrl-C only once, through the scheduler.
            start_new_session=True,
        )


class StartRequest(NamedTuple):
    """The scheduler's message to a fork server: start a worker of this run."""

    run_id: str
    log: str


class ForkServer:
    """The scheduler's side of a fork server, which takes requests while it still loads `module`."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._connection, end = multiprocessing.Pipe()
        with end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, module, str(end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **environment},
                pass_fds=[end.fileno()],
                start_new_session=True,
            )
        self._workers: dict[str, ForkedWorker] = {}

    @property
    def has_ended(self) -> bool:
        """True if its process is gone, such as killed for lack of memory: it starts no more workers."""
        return self._process.poll() is not None

    def start(self, run_id: str, log: Path) -> "ForkedWorker":
        """A worker of that run, its output appended to `log`; it is forked once the server has loaded its module."""
        worker = self._workers[run_id] = ForkedWorker(self)
        # `follow` notices that a server is gone.
        with suppress(OSError):
            self._connection.send(StartRequest(run_id, str(log)))
        return worker

    def follow(self) -> None:
        """Bring `pid` and `code` of the workers up to date."""
        exit_code = self._process.poll()
        with suppress(EOFError, OSError):
            while self._connection.poll():
                run_id, pid, code = self._connection.recv()
                self._workers[run_id].update(pid, code)
        if exit_code is not None:
            for worker in self._workers.values():
                worker.code = (exit_code or 1) if worker.code is None else worker.code

    def close(self) -> None:
        """End the server; workers that still run stop, too."""
        self._connection.close()
        self._process.wait()


@dataclass
class ForkedWorker:
    """See `Worker`."""

    server: ForkServer
    pid: int = 0
    code: int | None = None
    asked: int = 0
    """The signal that it gets as soon as it is forked."""

    def update(self, pid: int, code: int | None) -> None:
        """The server has forked the process, or it has ended with `code`."""
        self.pid, self.code = pid, code
        if self.asked:
            self._signal(self.asked)

    def poll(self) -> int | None:
        if self.code is None:
            self.server.follow()
        return self.code

    def stop(self) -> None:
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if not self.pid:
            self.asked = number
        elif self.code is None:
            # It may have ended, and its code may not have arrived yet.
            with suppress(ProcessLookupError):
                (os.killpg if number == signal.SIGKILL else os.kill)(self.pid, number)


def serve(module: str, scheduler: Connection) -> int:
    """Fork a worker for each request until the scheduler is gone; a worker returns its exit code from here."""
    command = parent_command()
    # If the module cannot be loaded, the worker reports that when it loads it again.
    with suppress(Exception):
        importlib.import_module(module)
    # Loaded objects are excluded from garbage collection, so that their pages stay shared.
    gc.freeze()
    try:
        request = _supervise(scheduler)
    except (EOFError, BrokenPipeError, ConnectionResetError):  # the scheduler is gone
        return 0
    scheduler.close()
    _become(request.log)
    return work(request.run_id, command)


def _supervise(scheduler: Connection) -> "StartRequest":
    """Fork workers and report their ends; returns only in a worker, with its request."""
    running: dict[int, str] = {}
    while True:
        if scheduler.poll(POLL_SECONDS):
            request: StartRequest = scheduler.recv()
            pid = os.fork()
            if pid == 0:
                return request
            running[pid] = request.run_id
            scheduler.send((request.run_id, pid, None))
        while running and (result := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = result
            scheduler.send((running.pop(pid), pid, os.waitstatus_to_exitcode(status)))


def _become(log: str) -> None:
    """Turn a fresh child into a process with its own session and output."""
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for target in (1, 2):
        os.dup2(output, target)


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1], Connection(int(sys.argv[2]))))
