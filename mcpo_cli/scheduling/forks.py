"""Workers that need not load their libraries: `python -m mcpo_cli.scheduling.forks MODULE` loads MODULE once and forks.

Loading torch and transformers takes seconds of CPU time, as much as a short run. The fork server has one thread and
computes nothing, so forking is safe; its children are what `mcpo_cli.scheduling.worker` describes, each in its own
session. When the scheduler is gone (even by SIGKILL) the server exits, and its children, whose parent that is, stop.

Scheduler to server, a JSON line a run: `{"run_id", "log"}`. Server to scheduler: `{"run_id", "pid"}` when the worker
was born, `{"run_id", "code"}` when it has ended, negative for a signal.
"""

import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mcpo_cli.runs.provenance import parent_command
from mcpo_cli.scheduling.worker import work


class ForkServer:
    """The scheduler's end of a fork server, which starts at once and takes requests while it loads `module`."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._unread = b""
        self._workers: dict[str, ForkedWorker] = {}

    def start(self, run_id: str, log: Path) -> "ForkedWorker":
        """A worker of that run, its output appended to `log`; it is born once the server has loaded its module."""
        worker = self._workers[run_id] = ForkedWorker(self)
        assert self._process.stdin is not None
        # A server that is gone is noticed by `follow`.
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"run_id": run_id, "log": str(log)}).encode() + b"\n")
            self._process.stdin.flush()
        return worker

    def follow(self) -> None:
        """Bring `pid` and `code` of the workers up to date."""
        assert self._process.stdout is not None
        gone = self._process.poll()
        *lines, self._unread = (self._unread + (self._process.stdout.read() or b"")).split(b"\n")
        for line in lines:
            message = json.loads(line)
            worker = self._workers[message["run_id"]]
            if "pid" in message:
                worker.born(message["pid"])
            else:
                worker.code = message["code"]
        if gone is not None:
            for worker in self._workers.values():
                if worker.code is None:
                    worker.code = gone or 1

    def close(self) -> None:
        """End the server; workers that still run stop, too."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@dataclass
class ForkedWorker:
    """See `handles.Worker`."""

    server: ForkServer
    pid: int = 0
    """0 until it was born."""
    code: int | None = None
    asked: int = 0
    """The signal that it is to get when it is born."""

    def born(self, pid: int) -> None:
        """The server has forked it."""
        self.pid = pid
        if self.asked:
            self._signal(self.asked)

    def poll(self) -> int | None:
        """See `handles.Worker`."""
        if self.code is None:
            self.server.follow()
        return self.code

    def stop(self) -> None:
        """See `handles.Worker`."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill the process and all that it started."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if not self.pid:
            self.asked = number
        elif self.code is None:
            # Gone, and its code is on the way.
            with suppress(ProcessLookupError):
                (os.killpg if number == signal.SIGKILL else os.kill)(self.pid, number)


class ForkServers:
    """The fork servers of a scheduler: one for each module and environment, which torch reads as it is loaded."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, ...], ForkServer] = {}

    def start(self, module: str, environment: Mapping[str, str], run_id: str, log: Path) -> ForkedWorker:
        """A worker of that run from the server that fits; see `ForkServer.start`."""
        key = (module, *environment.values())
        if key not in self._servers:
            self._servers[key] = ForkServer(module, environment)
        return self._servers[key].start(run_id, log)

    def close(self) -> None:
        """See `ForkServer.close`."""
        for server in self._servers.values():
            server.close()


def serve(module: str) -> int:
    """Fork a worker for each request until the scheduler is gone; a worker returns its exit code from here."""
    command = parent_command()
    # A module that cannot be loaded is for the worker to report: it loads it again.
    with suppress(Exception):
        importlib.import_module(module)
    # What is loaded is left alone by the garbage collector, so that its pages stay shared.
    gc.freeze()
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    requests, running = sys.stdin.fileno(), dict[int, str]()
    unread = b""
    while True:
        readable, _, _ = select.select([requests, ended], [], [])
        if ended in readable:
            os.read(ended, 1024)
        while (found := _ended()) is not None:
            pid, code = found
            _say(run_id=running.pop(pid), code=code)
        if requests not in readable:
            continue
        received = os.read(requests, 1 << 16)
        if not received:
            return 0
        *lines, unread = (unread + received).split(b"\n")
        for request in map(json.loads, lines):
            pid = os.fork()
            if pid == 0:
                _become(request["log"], ended, wake)
                return work(request["run_id"], command)
            running[pid] = request["run_id"]
            _say(run_id=request["run_id"], pid=pid)


def _become(log: str, *pipes: int) -> None:
    """Turn a fresh child into a process of its own: session, signals, input and output."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pipe in pipes:
        os.close(pipe)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)


def _ended() -> tuple[int, int] | None:
    """Process id and exit code of a child that has ended and was not yet asked for."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _say(**message: object) -> None:
    # The scheduler may be gone, which the next read tells.
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1]))
