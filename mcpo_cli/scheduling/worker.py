"""The process that trains one run: `python -m mcpo_cli.scheduling.worker RUN_ID`.

Reads runs/<run_id>/spec.json, holds the run's lock, opens an attempt and calls the backend. Exit codes: 0 (done),
130 (stopped on request; a checkpoint was written), 75 (another process works on the run) or 1 (failed; the reason is
in status.json, or at the end of the log if no attempt was opened).
"""

import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mcpo_cli import backends, plugins
from mcpo_cli.config import forking
from mcpo_cli.config.used_plugins import used_plugins
from mcpo_cli.errors import Interrupted, McpoError, RunFailed, one_line
from mcpo_cli.home import run_dir
from mcpo_cli.redaction import redact
from mcpo_cli.runs import catalog, folders, origins, provenance
from mcpo_cli.runs.attempts import Attempt, Busy, durable_step, missing, owned, recorded_state, resume_step
from mcpo_cli.trackers.follower import following_attempt

BUSY = 75
"""Exit code if another process works on the run: EX_TEMPFAIL of sysexits.h."""


class Overdue(BaseException):
    """A run did not stop in time; not an `Exception`, because callers catch errors of methods and graders."""


def _end(*_: object) -> None:
    raise Overdue


class StopRequest:
    """Returns true once a signal asked the run to stop or the parent process is gone."""

    def __init__(self) -> None:
        self._asked, self._grace = False, 0.0
        self._parent = os.getppid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def __call__(self) -> bool:
        return self._asked or os.getppid() != self._parent

    @contextmanager
    def within(self, grace: float | None) -> Iterator[None]:
        """End the block if it does not end within `grace` seconds of the request; None: wait for it.

        Raises:
            Interrupted: the block was ended.
        """
        signal.signal(signal.SIGALRM, _end)
        self._grace = grace or 0.0
        try:
            if self._asked:
                self._ask()
            yield
        except Overdue:
            raise Interrupted("stopped where it was; it continues from its last checkpoint") from None
        finally:
            self._grace = 0.0
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _ask(self, *_: object) -> None:
        self._asked = True
        if self._grace:
            # Repeated every second, because an exception in a destructor is lost.
            signal.setitimer(signal.ITIMER_REAL, self._grace, 1.0)


def work(run_id: str, command: Sequence[str]) -> int:
    """Train one run, which the user started with `command`; returns the exit code."""
    stop = StopRequest()
    try:
        folder = run_dir(run_id)
        with owned(folder):
            return _attempt(folder, stop, command)
    except Busy as error:
        return _said(error, BUSY)
    except McpoError as error:
        return _said(error, error.exit_code)


def _attempt(folder: Path, stop: StopRequest, command: Sequence[str]) -> int:
    """Train the run whose lock this process holds; returns the exit code."""
    spec = catalog.spec(folder)
    if used_plugins(spec) != spec.plugins:
        raise RunFailed(
            f"{', '.join(spec.plugins)}: the plug-in has changed since this run was planned",
            fix="repeat the command that started the run: it plans a new run",
        )
    # Another scheduler's worker may have finished it while this one waited for the lock.
    if recorded_state(folder, spec) == "done":
        return 0
    backend = backends.get(spec.backend)
    start, reached = resume_step(folder, spec, backend.kept(folder)), durable_step(folder)
    # A fork never starts from the base policy: the copy is made again where a kill left a part of it or it is damaged.
    if spec.fork and start < forking.parse(spec.fork)[1]:
        start = origins.fork(folder, spec)
    attempt = Attempt(folder, spec, start)
    try:
        if start < reached:
            attempt.note(
                f"continues from {f'the checkpoint of step {start}' if start else 'the base policy'} instead of step "
                f"{reached}: later checkpoints, or the rows up to them, are missing or damaged"
            )
        provenance.write(attempt.folder, command)
        for change in provenance.changes(folder):
            attempt.note(change)
        with stop.within(backend.grace), following_attempt(spec, attempt):
            backend.run(spec, attempt, stop)
        if gaps := missing(folder, spec):
            raise RunFailed("the run ended but its records are incomplete: " + "; ".join(gaps))
        attempt.end("done")
    except Interrupted as error:
        attempt.end("interrupted", str(error))
        return error.exit_code
    except McpoError as error:
        attempt.end("failed", str(error))
        return _said(error, 1)
    except Exception as error:
        attempt.end("failed", plugins.described(error))
        sys.stderr.write(redact(traceback.format_exc()))
        return 1
    # Not before: a run without checkpoints that is killed before its end would be trained from its beginning.
    with suppress(OSError):
        folders.prune(folder, spec.compute.checkpoints_after)
    return 0


def _said(error: McpoError, code: int) -> int:
    """Print the reason as the last line of the log; returns `code`."""
    # The log may be on a full disk.
    with suppress(OSError):
        print(redact(one_line(str(error))), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(work(sys.argv[1], provenance.parent_command()))
