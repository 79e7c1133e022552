"""A pool of processes that grade, each killed and replaced when an item takes too long.

Why not `multiprocessing`, `concurrent.futures` or `pebble`: their workers import the caller's `__main__` again (once
for every replacement), need a caller that may have children (a daemonic process and some actors may not), measure the
time of a whole chunk, and leave a busy process behind when the caller is killed. Here a worker is a plain subprocess
(`worker.py`) that knows nothing of its caller and replaces itself by a fork.
"""

import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import mcpo_cli
from mcpo_cli import machine, plugins
from mcpo_cli.errors import ConfigError, RunFailed, closest, nearest
from mcpo_cli.grading.base import Verdict
from mcpo_cli.grading.integers import compare
from mcpo_cli.plugins import Found, Place

START_SECONDS = 120.0
"""For a worker to load its libraries, on a busy machine with a cold disk."""
ENVIRONMENT = {
    # Verdicts must not depend on whether gmpy2 is installed, and gmp aborts where memory runs out.
    "SYMPY_GROUND_TYPES": "python",
    "MPMATH_NOGMPY": "1",
    # nor on the order of sets
    "PYTHONHASHSEED": "0",
}


@cache
def registry() -> Found[str]:
    """The module of each grader, by the grader's name; imports none but the files of plug-in folders."""

    def declared(place: Place) -> list[tuple[str, str]]:
        is_one = place.path is None or hasattr(place.load(), "grade")
        return [(place.name, place.module)] if is_one else []

    return plugins.find("graders", ["mcpo_cli.grading.graders"], declared)


class _Died(Exception):
    """The process that had the item is no more."""


@dataclass
class _Item:
    gold: str
    response: str
    extracted: bool
    future: Future[Verdict] = field(default_factory=Future)


class _Worker:
    """One worker process (see worker.py), used by one thread; only `finish` may be called from others."""

    def __init__(self, grader: str, memory_mib: int, timeout: float) -> None:
        self.command = [sys.executable, "-P", "-m", "mcpo_cli.grading.worker", registry()[grader], str(memory_mib)]
        self.timeout = timeout
        self.about: dict[str, Any] = {}
        self._count = 0
        self._finishing = False
        self._start()

    def _start(self) -> None:
        self._pid: int | None = None  # of the child that grades; None until it is ready
        self._received = b""
        self._errors, name = tempfile.mkstemp()
        Path(name).unlink()
        path = [str(Path(mcpo_cli.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(path)},
            start_new_session=True,  # Ctrl-C in a terminal is the caller's to handle
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout
        os.set_blocking(self._requests.fileno(), False)

    def ready(self) -> None:
        """Wait until a child serves, with a new supervisor if need be; RunFailed where none can."""
        for last in (False, True):
            if self._process.poll() is None:
                with suppress(_Died):
                    while self._receive(time.monotonic()):  # of children that came and went while nobody asked
                        pass
                    deadline = time.monotonic() + START_SECONDS
                    while self._pid is None and self._receive(deadline):
                        pass
                if self._pid is not None:
                    return
            if last or not self.about:  # what has never served will not
                break
            self.stop()
            self._start()
        said = os.pread(self._errors, 2**20, 0).decode(errors="replace").split("\n")
        raise RunFailed(
            f"the grading process does not start: {next(filter(str.strip, reversed(said)), 'it says nothing')}"
        )

    def judge(self, item: _Item) -> Verdict:
        """The verdict; an item whose process died is tried once more on a fresh one."""
        for _ in range(2):
            if self._finishing:
                return Verdict("infra_error", detail="the pool was closed")
            self.ready()
            with suppress(_Died):
                return self._ask(item)
        return Verdict("infra_error", detail="the grading process died twice")

    def _ask(self, item: _Item) -> Verdict:
        self._count += 1
        request = {"id": self._count, "gold": item.gold, "response": item.response, "extracted": item.extracted}
        deadline, child = time.monotonic() + self.timeout, self._pid
        self._send(b"\n" + json.dumps(request).encode() + b"\n", deadline)
        while (message := self._receive(deadline)) is not None:
            if self._pid != child:
                raise _Died
            if message["id"] == self._count:
                if message["leaving"]:
                    self._pid = None
                return Verdict(message["status"], message["answer"], message["detail"])
        self._kill()
        self._pid = None
        return Verdict("timeout", detail=f"no verdict within {self.timeout:g} s")

    def _send(self, data: bytes, deadline: float) -> None:
        """Write as much as the child takes before the deadline."""
        poll = select.poll()
        poll.register(self._requests, select.POLLOUT)
        while data and poll.poll(_milliseconds(deadline)):
            try:
                data = data[os.write(self._requests.fileno(), data) :]
            except BrokenPipeError:
                raise _Died from None

    def _receive(self, deadline: float) -> dict[str, Any] | None:
        """The next message, or None at the deadline; takes note of a new child."""
        poll = select.poll()
        poll.register(self._replies, select.POLLIN)
        while True:
            line, found, rest = self._received.partition(b"\n")
            if not found:
                if not poll.poll(_milliseconds(deadline)):
                    return None
                if not (data := os.read(self._replies.fileno(), 2**16)):
                    self._pid = None
                    raise _Died
                self._received += data
                continue
            self._received = rest
            with suppress(ValueError):  # an empty line, or what a killed child left of one
                message: dict[str, Any] = json.loads(line)
                if "pid" in message:
                    self._pid, self.about = message["pid"], message
                return message

    def _kill(self) -> None:
        """Kill the child that grades; another takes its place."""
        if (child := self._pid) is not None:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def finish(self) -> None:
        """Cut short what is being graded; nothing more will be."""
        self._finishing = True
        self._kill()

    def stop(self) -> None:
        """End the worker's processes: it ends them itself when its input hangs up, else they are killed."""
        self._requests.close()
        try:
            code = self._process.wait(2)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._replies.close()
        os.close(self._errors)


class _Line:
    """Items that wait, by gold: a worker goes on with the gold it has parsed while there are samples of it."""

    def __init__(self) -> None:
        self._items: dict[str, deque[_Item]] = {}
        self._change = threading.Condition()
        self._closed = False

    def put(self, item: _Item) -> None:
        """Add an item; RuntimeError after `close`."""
        with self._change:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._items.setdefault(item.gold, deque()).append(item)
            self._change.notify()

    def take(self, gold: str) -> _Item | None:
        """The next item, of that gold if there is one; waits for one; None after `close`."""
        with self._change:
            self._change.wait_for(lambda: self._items or self._closed)
            if self._closed:
                return None
            if gold not in self._items:
                # Of the golds that wait, the one that came first; it goes to the end: others take others.
                gold = next(iter(self._items))
                self._items[gold] = self._items.pop(gold)
            item = self._items[gold].popleft()
            if not self._items[gold]:
                del self._items[gold]
            return item

    def close(self) -> list[_Item]:
        """Let nobody wait any more; returns what waited."""
        with self._change:
            self._closed = True
            left = [item for items in self._items.values() for item in items]
            self._items.clear()
            self._change.notify_all()
            return left


def _milliseconds(deadline: float) -> int:
    return max(0, math.ceil((deadline - time.monotonic()) * 1000))


class Pool:
    """Grades answers in processes of its own; a context manager, and safe to use from any thread or process kind.

    grader: one of `registry()`; ConfigError for another. workers: processes, 0 for one a core.
    timeout: seconds that one item may take, from its start on. memory_mib: cap of one worker, its supervisor included.
    RunFailed: the workers cannot start.
    """

    def __init__(
        self, grader: str = "math_verify", *, workers: int = 0, timeout: float = 5.0, memory_mib: int = 1024
    ) -> None:
        if grader not in registry():
            hint = nearest(grader, registry())
            raise ConfigError(f"no grader '{grader}': {hint}", fix=f"grader={closest(grader, registry())}")
        self._line = _Line()
        self._workers = [_Worker(grader, memory_mib, timeout) for _ in range(workers or machine.cores())]
        try:
            for worker in self._workers:
                worker.ready()
        except BaseException:
            for worker in self._workers:
                worker.stop()
            raise
        self.version: str = self._workers[0].about["version"]
        self._integers: bool = self._workers[0].about["integers"]
        self._threads = [threading.Thread(target=self._run, args=(worker,), daemon=True) for worker in self._workers]
        for thread in self._threads:
            thread.start()

    def submit(self, gold: str, response: str, *, extracted: bool = False) -> Future[Verdict]:
        """Grade `response` against `gold`; extracted: `response` already is the bare answer."""
        item = _Item(gold, response, extracted)
        if self._integers and (verdict := compare(gold, response, extracted)):
            item.future.set_result(verdict)
        else:
            self._line.put(item)
        return item.future

    def grade(self, pairs: Iterable[tuple[str, str]], *, extracted: bool = False) -> list[Verdict]:
        """The verdicts on (gold, response) pairs, in their order."""
        futures = [self.submit(gold, response, extracted=extracted) for gold, response in pairs]
        return [future.result() for future in futures]

    def _run(self, worker: _Worker) -> None:
        """Give `worker` one item after the other."""
        gold = ""
        while (item := self._line.take(gold)) is not None:
            gold = item.gold
            if item.future.set_running_or_notify_cancel():
                try:
                    item.future.set_result(worker.judge(item))
                except Exception as error:
                    item.future.set_exception(error)
        worker.stop()

    def close(self) -> None:
        """Cancel what waits, end the processes; what is being graded becomes an infra_error. Can be called again."""
        for item in self._line.close():
            item.future.cancel()
        for worker in self._workers:
            worker.finish()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
