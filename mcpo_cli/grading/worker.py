"""The process that grades: `python -m mcpo_cli.grading.worker MODULE MEMORY_MIB`, started and killed by `pool`.

It is a supervisor: it loads the grader once, then forks a child that answers the requests on the standard input
they share, a line of JSON each. When the child has died the next one is forked from the loaded state, within
milliseconds. The supervisor never grades and has one thread, so forking is safe and it cannot hang. Where its
caller is gone (even by SIGKILL) it kills the child and ends: nobody else would.

Child to caller: `{"pid", "version", "integers"}` when it is ready, then `{"id", "leaving", "status", "answer",
"detail"}` for each `{"id", "gold", "response", "extracted"}`; a child that has taken much memory leaves. Lines begin
with a line break too, so that what a killed process left of a line spoils no other; a line that is no request is such
a remainder.
"""

import gc
import importlib
import json
import logging
import os
import resource
import select
import signal
import sys
import warnings
from dataclasses import asdict
from typing import Any, BinaryIO, cast

import psutil

from mcpo_cli.grading.base import Grader, Verdict

MIB = 2**20
DIGITS = 100_000
"""Longest integer that is converted from or to text: the time that takes is quadratic."""
ROOM_MIB = 128
"""Least memory for the work itself, beyond what the loaded libraries take."""
WARM_UP = (
    *(r"\frac{1}{2}", r"-3\sqrt{2}", r"x^2+2x+1", r"x(3x-2)", r"\frac{x+1}{2y}", r"(1,2)", r"[0,\infty)", r"\{1,2\}"),
    *(
        r"x=\frac{3\pi}{4}",
        "12.5",
        r"2\pi r^2",
        "f(x)=x^2+1",
        "x \\le 2",
        r"\log_{2} 3",
        "2^{10}",
        r"3 \cdot 4",
        "x_1+1",
    ),
)
"""Answers that fill the caches of the libraries before the fork, so that every child has them."""


def judged(grader: Grader, request: dict[str, Any]) -> Verdict:
    """The verdict on one request; an answer can make no exception leave here but MemoryError."""
    try:
        return grader.grade(request["gold"], request["response"], request["extracted"])
    except RecursionError:
        return Verdict("unparsable", detail="nested too deeply")
    except MemoryError:
        raise
    except Exception as error:
        return Verdict("infra_error", detail=f"{type(error).__name__}: {error}"[:500])


def serve(grader: Grader, replies: BinaryIO, limit: int) -> None:
    """Answer requests until the caller is gone, or until so much memory is taken that a fresh child is better."""

    def send(message: dict[str, Any]) -> None:
        replies.write(b"\n" + json.dumps(message).encode() + b"\n")
        replies.flush()

    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    send({"pid": os.getpid(), "version": grader.version(), "integers": grader.INTEGERS})
    process = psutil.Process()
    enough = (process.memory_info().vms + limit) / 2
    for line in sys.stdin.buffer:
        try:
            request = json.loads(line)
        except ValueError:
            continue
        try:
            verdict = judged(grader, request)
            leaving = process.memory_info().vms > enough
        except MemoryError:
            verdict, leaving = Verdict("timeout", detail="memory"), True
        send({"id": request["id"], "leaving": leaving, **asdict(verdict)})
        if leaving:
            return


def supervise(grader: Grader, replies: BinaryIO, limit: int) -> None:
    """Keep one child serving until the caller is gone."""
    caller = os.getppid()
    gone = False
    while not gone:
        watch, held = os.pipe()  # only the child has the write end: it hangs up when the child is dead
        child = os.fork()
        if child == 0:
            try:
                os.close(watch)
                serve(grader, replies, limit)
            finally:
                os._exit(0)
        os.close(held)
        gone = not _outlives(child, watch, caller)
        os.waitpid(child, 0)
        os.close(watch)


def _outlives(child: int, watch: int, caller: int) -> bool:
    """Wait for the end of the child (True) or of the caller (False; then the child is killed)."""
    poll = select.poll()
    poll.register(watch, 0)
    poll.register(sys.stdin.fileno(), 0)
    while True:
        hung_up = {descriptor for descriptor, _ in poll.poll(1000)}
        # Forks of the caller can hold its end of the pipe open, so its life is looked at too.
        if sys.stdin.fileno() in hung_up or os.getppid() != caller:
            os.kill(child, signal.SIGKILL)
            return False
        if hung_up:
            return True


def main() -> None:
    """Load the grader of the command line and keep it answering."""
    module, memory_mib = sys.argv[1], int(sys.argv[2])
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is not part of the protocol
    logging.disable()
    warnings.simplefilter("ignore")
    sys.set_int_max_str_digits(DIGITS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    grader = cast(Grader, importlib.import_module(module))
    for answer in WARM_UP:
        judged(grader, {"gold": answer, "response": rf"\boxed{{{answer}}}", "extracted": False})
    memory = psutil.Process().memory_info()
    limit = memory_mib * MIB - memory.rss  # the supervisor's own share of the cap
    if limit < memory.vms + ROOM_MIB * MIB:
        least = (memory.rss + memory.vms) // MIB + ROOM_MIB + 1
        sys.exit(f"a memory cap of {memory_mib} MiB is too small: the grader needs {least} MiB")
    gc.freeze()  # a collection in a child would copy what it shares with the supervisor
    supervise(grader, replies, limit)
    os._exit(0)


if __name__ == "__main__":
    main()
