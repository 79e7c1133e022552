"""The process that trains one run: `python -m mcpo_cli.runs.worker RUN_ID`.

Reads runs/<run_id>/spec.json, holds the run's lock, opens an attempt and calls the backend. Ends with 0
(done), 130 (asked to stop; a checkpoint was written) or 1 (failed; the reason is in status.json).
"""

import os
import signal
import sys
import traceback

from mcpo_cli import backends
from mcpo_cli.config.load import from_dict
from mcpo_cli.errors import Interrupted, McpoError, RunFailed
from mcpo_cli.redaction import redact
from mcpo_cli.runs import provenance
from mcpo_cli.runs.attempts import Attempt, missing, owned
from mcpo_cli.runs.home import run_dir
from mcpo_cli.runs.journal import read_json


class StopRequest:
    """True once a signal asked the run to stop, or once the process that started it is gone."""

    def __init__(self) -> None:
        self._asked = False
        self._parent = os.getppid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def __call__(self) -> bool:
        return self._asked or os.getppid() != self._parent

    def _ask(self, _number: int, _frame: object) -> None:
        self._asked = True


def work(run_id: str) -> int:
    """Train one run; returns the exit code."""
    stop = StopRequest()
    folder = run_dir(run_id)
    spec = from_dict(read_json(folder / "spec.json"))
    backend = backends.get(spec.backend)
    try:
        with owned(folder):
            attempt = Attempt(folder, spec, backend.resume_step(folder))
            provenance.write(attempt.folder, provenance.parent_command())
            try:
                backend.run(spec, attempt, stop)
                if gaps := missing(folder, spec):
                    raise RunFailed("the run ended but its records are not whole: " + "; ".join(gaps))
                attempt.end("done")
            except Interrupted as error:
                attempt.end("interrupted", str(error))
                return error.exit_code
            except Exception as error:
                attempt.end(
                    "failed", str(error) if isinstance(error, McpoError) else f"{type(error).__name__}: {error}"
                )
                sys.stderr.write(redact(traceback.format_exc()))
                return 1
    except RunFailed as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(work(sys.argv[1]))
