"""A pool of grading processes; a process that takes too long is killed and replaced.

Why not `multiprocessing`, `concurrent.futures` or `pebble`: their workers import the caller's `__main__` again (for
every replacement), need a caller that may have children (daemonic processes and some actors may not), time a whole
chunk, and leave busy processes running when the caller is killed. Here a worker is a plain subprocess (`worker.py`)
that is independent of its caller and replaces its grading child by a fork.
"""

import fcntl
import json
import math
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

import mcpo_cli
from mcpo_cli import machine, plugins
from mcpo_cli.errors import ConfigError, RunFailed, mend, nearest
from mcpo_cli.grading import functions
from mcpo_cli.grading.base import Grade
from mcpo_cli.plugins import Candidate, Found

START_SECONDS = 120.0
"""Time limit for a worker to load its libraries, even on a busy machine with a cold disk."""
MOST_PRINTED = 2**20
"""Bytes that a worker prints before they are dropped: a user's function may print something for each answer."""
INHERITED = re.compile(
    r"PATH|LANG|LC_\w+|TZ|TMPDIR|(LD|DYLD)_LIBRARY_PATH|PYTHON\w+|\w+_NUM_THREADS|VIRTUAL_ENV|CONDA_PREFIX|MCPO_PLUGINS"
)
"""Variables of the caller's environment that a worker gets. It needs no others, and some hold secrets."""
ENVIRONMENT = {
    # Verdicts must not depend on whether gmpy2 is installed; gmp also aborts when memory runs out.
    "SYMPY_GROUND_TYPES": "python",
    "MPMATH_NOGMPY": "1",
    # Verdicts must not depend on the order of sets.
    "PYTHONHASHSEED": "0",
}
GRADERS = {
    "math_verify": "mcpo_cli.grading.math_verify",
    "math_dapo": "mcpo_cli.grading.simple:MATH_DAPO",
    "exact": "mcpo_cli.grading.simple:EXACT",
    "trace": "mcpo_cli.grading.simple:TRACE",
    "final": "mcpo_cli.grading.simple:FINAL",
    "integer": "mcpo_cli.grading.simple:INTEGER",
    "answer_is": "mcpo_cli.grading.simple:ANSWER",
    "palindrome": "mcpo_cli.grading.simple:PALINDROME",
    "countdown": "mcpo_cli.grading.simple:COUNTDOWN",
}
"""The graders of this package; one of them loads a library."""
READS = {
    "math_verify": r"\boxed{} or 'Answer: ...'",
    "math_dapo": "'Answer: ...'",
    "final": "the text after the last ####",
    "integer": "a response that is an integer, or one after its last =",
    "answer_is": "one number after 'answer is' or ####",
    "countdown": "a response that is an expression",
}
"""By grader that may find no answer (`unparsable`): where it looks for one."""


@cache
def registry() -> Found[str]:
    """The location of each grader, by name (see `load`); imports only files of plug-in folders."""

    def declared(candidate: Candidate) -> list[tuple[str, str]]:
        if candidate.path is None:
            return [(candidate.name, candidate.module)]
        module = candidate.load()
        if hasattr(module, "grade") and not hasattr(module, "version"):
            raise TypeError("its grader has no function version(), which names its rules in records")
        return [(candidate.name, candidate.module)] if hasattr(module, "grade") else []

    graders = plugins.find("graders", [], declared)
    for name, location in GRADERS.items():
        if name in graders:
            raise plugins.taken(f"grader '{name}'", location, graders[name])
        graders[name] = location
    return graders


REFUSING = " refusing unevaluated"
"""End of the version of a pool that does not take unevaluated answers."""


class _Died(Exception):
    """The process that was grading the item died."""


@dataclass
class _Item:
    gold: str
    response: str
    extracted: bool
    future: Future[Grade] = field(default_factory=Future)


class _Worker:
    """One worker process (see worker.py), used by one thread; only `finish` may be called from others."""

    def __init__(self, grader: str, memory_mib: int, timeout: float) -> None:
        location = functions.absolute(grader) if functions.is_function(grader) else registry()[grader]
        self.command = [sys.executable, "-P", "-m", "mcpo_cli.grading.worker", location, str(memory_mib)]
        self.timeout = timeout
        self.about: dict[str, Any] = {}
        self._count = 0
        self._finishing = False
        self._start()

    def _start(self) -> None:
        self._pid: int | None = None  # of the grading child; None until it is ready
        self._received = b""
        self._errors, name = tempfile.mkstemp()
        Path(name).unlink()
        fcntl.fcntl(self._errors, fcntl.F_SETFL, os.O_APPEND)  # else it cannot be emptied while others write to it
        path = [str(Path(mcpo_cli.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        inherited = {name: value for name, value in os.environ.items() if INHERITED.fullmatch(name)}
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env={**inherited, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(path)},
            start_new_session=True,  # only the caller handles Ctrl-C
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout
        os.set_blocking(self._requests.fileno(), False)

    def ready(self) -> None:
        """Wait until a child serves, with one restart of the supervisor if needed; otherwise raise RunFailed."""
        for last in (False, True):
            if self._process.poll() is None:
                with suppress(_Died):
                    while self._receive(time.monotonic()):  # discard old messages
                        pass
                    deadline = time.monotonic() + START_SECONDS
                    while self._pid is None and self._receive(deadline):
                        pass
                if self._pid is not None:
                    return
            if last or not self.about:  # a worker that never served will not
                break
            self.stop()
            self._start()
        lines = os.pread(self._errors, MOST_PRINTED, 0).decode(errors="replace").split("\n")
        raise RunFailed(
            f"the grading process does not start: {next(filter(str.strip, reversed(lines)), 'no output')}",
            code="grader_failed",
        )

    def grade(self, item: _Item) -> Grade:
        """The verdict; if the process dies, the item is retried once on a fresh one."""
        for _ in range(2):
            if self._finishing:
                return Grade("infra_error", detail="the pool was closed")
            self.ready()
            with suppress(_Died):
                return self._ask(item)
        return Grade("infra_error", detail="the grading process died twice")

    def _ask(self, item: _Item) -> Grade:
        self._count += 1
        request = {"id": self._count, "gold": item.gold, "response": item.response, "extracted": item.extracted}
        deadline, child = time.monotonic() + self.timeout, self._pid
        if os.fstat(self._errors).st_size > MOST_PRINTED:
            os.ftruncate(self._errors, 0)
        self._send(b"\n" + json.dumps(request).encode() + b"\n", deadline)
        while (message := self._receive(deadline)) is not None:
            if self._pid != child:
                raise _Died
            if message["id"] == self._count:
                if message["leaving"]:
                    self._pid = None
                return Grade(message["status"], message["answer"], message["detail"], message["score"])
        self._kill()
        self._pid = None
        return Grade("timeout", detail=f"no verdict within {self.timeout:g} s")

    def _send(self, data: bytes, deadline: float) -> None:
        """Write `data`, or as much of it as the child accepts before the deadline."""
        poll = select.poll()
        poll.register(self._requests, select.POLLOUT)
        while data and poll.poll(_milliseconds(deadline)):
            try:
                data = data[os.write(self._requests.fileno(), data) :]
            except BrokenPipeError:
                raise _Died from None

    def _receive(self, deadline: float) -> dict[str, Any] | None:
        """The next message, or None at the deadline; records the pid of a new child."""
        poll = select.poll()
        poll.register(self._replies, select.POLLIN)
        while True:
            line, newline, tail = self._received.partition(b"\n")
            if not newline:
                if not poll.poll(_milliseconds(deadline)):
                    return None
                if not (data := os.read(self._replies.fileno(), 2**16)):
                    self._pid = None
                    raise _Died
                self._received += data
                continue
            self._received = tail
            with suppress(ValueError):  # an empty line, or one cut off by a kill
                message: dict[str, Any] = json.loads(line)
                if "pid" in message:
                    self._pid, self.about = message["pid"], message
                return message

    def _kill(self) -> None:
        """Kill the grading child and its forks; the supervisor forks another."""
        if (child := self._pid) is not None:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)

    def finish(self) -> None:
        """Abort the current item and refuse further ones."""
        self._finishing = True
        self._kill()

    def stop(self) -> None:
        """End the worker's processes: they exit when their input closes; if not, they are killed."""
        self._requests.close()
        try:
            code = self._process.wait(2)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            self._kill()
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._replies.close()
        os.close(self._errors)


def _milliseconds(deadline: float) -> int:
    return max(0, math.ceil((deadline - time.monotonic()) * 1000))


def check_name(grader: str, form: str = "grader={}") -> None:
    """Raise ConfigError unless there is such a grader; `form`: the option or setting that names it, for the fix."""
    if grader not in registry():
        fix = mend(form, grader, registry(), "mcpo components list grader")
        raise ConfigError(f"unknown grader '{grader}': {nearest(grader, registry())}", fix=fix, code="unknown_name")


class Pool:
    r"""Grades answers in worker processes; a context manager, safe to use from any thread or kind of process.

    Args:
        grader: one of `registry()`, or a user's function. workers: number of processes, 0 for one per core.
        timeout: seconds per item, from the start of its grading. memory_mib: cap per worker, including its supervisor.
        refuse_unevaluated: call an answer that restates the problem (`\sum_{k=1}^{6} k^2` for 91) `unevaluated`, for
            training rewards; otherwise it is `correct`, as benchmarks are graded.

    Raises:
        ConfigError: unknown grader. RunFailed: the workers cannot start.
    """

    def __init__(
        self,
        grader: str = "math_verify",
        *,
        workers: int = 0,
        timeout: float = 5.0,
        memory_mib: int = 1024,
        refuse_unevaluated: bool = False,
    ) -> None:
        self._failed: Grade | None = None
        """The first error of a user's function, which ends the run, so later items are not graded."""
        self._function = grader if functions.is_function(grader) else ""
        if not self._function:
            check_name(grader)
        self._items: SimpleQueue[_Item | None] = SimpleQueue()
        """Waiting items; None ends the thread that takes it."""
        self._closing, self._closed = threading.Lock(), False
        self._workers = [_Worker(grader, memory_mib, timeout) for _ in range(workers or machine.cores())]
        try:
            for worker in self._workers:
                worker.ready()
        except BaseException:
            for worker in self._workers:
                worker.stop()
            raise
        self._refuse = refuse_unevaluated
        about = str(self._workers[0].about["version"])
        # Records find a grader by the first word; a plug-in's version may be any text.
        name = "" if f"{about} ".startswith(f"{grader} ") else f"{grader} "
        self.version = name + about + (REFUSING if refuse_unevaluated else "")
        self._threads = [threading.Thread(target=self._run, args=(worker,), daemon=True) for worker in self._workers]
        for thread in self._threads:
            thread.start()

    def submit(self, gold: str, response: str, *, extracted: bool = False) -> Future[Grade]:
        """Grade `response` against `gold`; extracted: whether `response` is already the bare answer."""
        item = _Item(gold, response, extracted)
        with self._closing:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._items.put(item)
        return item.future

    def grade(self, pairs: Iterable[tuple[str, str]], *, extracted: bool = False) -> list[Grade]:
        """The verdicts on (gold, response) pairs, in order."""
        futures = [self.submit(gold, response, extracted=extracted) for gold, response in pairs]
        return [future.result() for future in futures]

    def _run(self, worker: _Worker) -> None:
        """Feed items to `worker` one by one until the pool is closed."""
        while (item := self._items.get()) is not None:
            if item.future.set_running_or_notify_cancel():
                try:
                    grade = self._failed or self._counted(worker.grade(item))
                    if self._function and grade.status == "infra_error":
                        self._failed = grade
                    item.future.set_result(grade)
                except Exception as error:
                    item.future.set_exception(error)
        worker.stop()

    def _counted(self, grade: Grade) -> Grade:
        name = Path(self._function).name
        if self._function and grade.status in ("timeout", "infra_error") and not grade.detail.startswith(name):
            # A long answer may exceed the time of a grader; a user's function that exceeds it, or ends it, is faulty.
            return Grade("infra_error", detail=f"{name}: {grade.detail}")
        if grade.status != "unevaluated" or self._refuse:
            return grade
        return Grade("correct", grade.answer, "unevaluated")

    def close(self) -> None:
        """Cancel waiting items and end the processes; items being graded become infra_error. Idempotent."""
        with self._closing:
            self._closed = True
        with suppress(Empty):
            while True:
                if (item := self._items.get_nowait()) is not None:
                    item.future.cancel()
        for worker in self._workers:
            self._items.put(None)
            worker.finish()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
