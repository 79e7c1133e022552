"""The grading process: `python -m mcpo_cli.grading.worker GRADER MEMORY_MIB`, started and killed by `pool`.

It is a supervisor: it loads the grader once, then forks a child that answers requests, one JSON line each, on their
shared standard input. When the child dies, the supervisor forks the next one from the loaded state within
milliseconds. It never grades and has one thread, so forking is safe and it cannot hang. When its caller is gone (even
by SIGKILL), it kills the child and exits.

Child to caller: `{"pid", "version"}` when ready, then `{"id", "leaving", "status", "answer", "detail"}` for
each `{"id", "gold", "response", "extracted"}`; a child that has used much memory exits (`leaving`). Every line also
begins with a line break, so that a line cut off by a kill does not corrupt the next; lines that are not JSON are
skipped.

Where the system caps no memory (macOS), a child that used too much exits after the answer.

If the grader `evaluates` (see `Grader`), the child forks again for each answer, so that any effect of an answer on its
process ends with it. Child and forks are one process group, which is killed as a whole.
"""

import gc
import json
import logging
import os
import resource
import select
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, BinaryIO

import psutil

from mcpo_cli.grading.base import Grade, Grader
from mcpo_cli.grading.functions import load
from mcpo_cli.machine import LINUX, MIB

DIGITS = 100_000
"""Most digits of an integer converted from or to text: the time is quadratic."""
ROOM_MIB = 128
"""Minimum memory for grading, in addition to the memory of the loaded libraries."""
DESCRIPTORS = 256
"""More than the number of open files of a worker, which starts with three."""
OUT_OF_MEMORY = Grade("timeout", detail="memory")
WARM_UP = (
    r"\frac{1}{2}; -3\sqrt{2}; x^2+2x+1; x(3x-2); \frac{x+1}{2y}; (1,2); [0,\infty); \{1,2\}; x=\frac{3\pi}{4}; 12.5; "
    r"2\pi r^2; f(x)=x^2+1; x \le 2; \log_{2} 3; 2^{10}; 3 \cdot 4; x_1+1"
)
"""Answers that are graded before the fork, so that every child inherits the libraries' filled caches."""


def judged(grader: Grader, request: dict[str, Any]) -> Grade:
    """The verdict on one request; raises no exception but MemoryError, whatever the answer."""
    evaluates = getattr(grader, "evaluates", None)

    def grade() -> Grade:
        return grader.grade(request["gold"], request["response"], request["extracted"])

    def judge() -> Grade:
        if evaluates and evaluates(request["gold"]):
            return _forked(lambda: _outcome(grade))
        return grade()

    return _outcome(judge)


def _outcome(judge: Callable[[], Grade]) -> Grade:
    try:
        return judge()
    except RecursionError:
        return Grade("unparsable", detail="nested too deeply")
    except MemoryError:
        raise
    except Exception as error:
        return Grade("infra_error", detail=f"{type(error).__name__}: {error}"[:500])


def _forked(judge: Callable[[], Grade]) -> Grade:
    """The verdict of `judge` in a fork without requests and replies. Raises ChildProcessError if it dies."""
    reading, writing = os.pipe()
    fork = os.fork()
    if fork == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.closerange(3, writing)
            os.closerange(writing + 1, DESCRIPTORS)
            try:
                grade = judge()
            except MemoryError:
                grade = OUT_OF_MEMORY
            with os.fdopen(writing, "wb") as reply:
                reply.write(json.dumps(asdict(grade)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as reply:
        answer = reply.read()
    os.waitpid(fork, 0)
    if not answer:
        raise ChildProcessError("the process that judged the answer died")
    return Grade(**json.loads(answer))


def serve(grader: Grader, requests: BinaryIO, replies: BinaryIO, limit: int) -> None:
    """Answer requests until the caller is gone, or until a fresh child is better because much memory is used."""

    def send(message: dict[str, Any]) -> None:
        replies.write(b"\n" + json.dumps(message).encode() + b"\n")
        replies.flush()

    os.setpgid(0, 0)
    if LINUX:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    send({"pid": os.getpid(), "version": grader.version()})
    process = psutil.Process()
    threshold = (_used(process) + limit) / 2
    for line in requests:
        try:
            request = json.loads(line)
        except ValueError:
            continue
        try:
            grade = judged(grader, request)
            leaving = _used(process) > threshold
        except MemoryError:
            grade, leaving = OUT_OF_MEMORY, True
        send({"id": request["id"], "leaving": leaving, **asdict(grade)})
        if leaving:
            return


def _used(process: psutil.Process) -> int:
    """Bytes that count towards the cap: the address space, which the system limits, or else the resident memory."""
    memory = process.memory_info()
    return int(memory.vms if LINUX else memory.rss)


def supervise(grader: Grader, requests: BinaryIO, replies: BinaryIO, limit: int) -> None:
    """Keep one child serving until the caller is gone."""
    caller = os.getppid()
    gone = False
    while not gone:
        watch, end = os.pipe()  # only the child holds the write end, so it hangs up when the child dies
        child = os.fork()
        if child == 0:
            try:
                os.close(watch)
                serve(grader, requests, replies, limit)
            finally:
                os._exit(0)
        os.close(end)
        gone = not _outlives(child, watch, requests.fileno(), caller)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # a fork that survived the child
        os.waitpid(child, 0)
        os.close(watch)


def _outlives(child: int, watch: int, requests: int, caller: int) -> bool:
    """Wait until the child ends (returns True) or the caller ends (kills the child, returns False)."""
    poll = select.poll()
    poll.register(watch, select.POLLIN)  # nothing is ever written to it
    poll.register(requests, 0)
    while True:
        hung_up = {descriptor for descriptor, _ in poll.poll(1000)}
        # Forks of the caller can keep the pipe open, so check the parent process as well.
        if requests in hung_up or os.getppid() != caller:
            os.killpg(child, signal.SIGKILL)
            return False
        if hung_up:
            return True


def main() -> None:
    """Load the grader named on the command line and serve requests."""
    location, memory_mib = sys.argv[1], int(sys.argv[2])
    # What a grader reads and prints stays out of the protocol: a user's function may call `input`.
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    logging.disable()
    warnings.simplefilter("ignore")
    sys.set_int_max_str_digits(DIGITS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    grader = load(location)
    for answer in WARM_UP.split("; "):
        judged(grader, {"gold": answer, "response": rf"\boxed{{{answer}}}", "extracted": False})
    supervisor = psutil.Process()
    shared, used = supervisor.memory_info().rss, _used(supervisor)
    _, ceiling = resource.getrlimit(resource.RLIMIT_AS)
    cap = memory_mib * MIB if ceiling == resource.RLIM_INFINITY else min(memory_mib * MIB, ceiling)
    limit = cap - shared  # the supervisor's own share
    if limit < used + ROOM_MIB * MIB:
        minimum = (shared + used) // MIB + ROOM_MIB + 1
        sys.exit(f"a memory cap of {cap // MIB} MiB is too small: the grader needs {minimum} MiB")
    gc.freeze()  # garbage collection in a child would copy memory shared with the supervisor
    supervise(grader, requests, replies, limit)
    os._exit(0)


if __name__ == "__main__":
    main()
