"""What the worker and the process that trains tell each other: small files in the attempt's folder.

Files, because the trainer is an actor of Ray and may live on another machine that shares the disk.
"""

import json
from pathlib import Path
from typing import Any

from mcpo_cli.errors import Interrupted, McpoError
from mcpo_cli.runs.journal import read_json, write_atomic


class Channel:
    """The files of one attempt; each has one writer."""

    def __init__(self, attempt_dir: Path) -> None:
        self._progress = attempt_dir / "verl" / "progress.json"
        self._ending = attempt_dir / "verl" / "ending.json"
        self._stop = attempt_dir / "verl" / "stop"

    def tell(self, phase: str, durable_step: int | None) -> None:
        """The trainer: what it does now, and the last step that a checkpoint of this attempt covers."""
        write_atomic(self._progress, json.dumps({"phase": phase, "durable_step": durable_step}))

    def progress(self) -> dict[str, Any]:
        """The worker: what was told last."""
        return read_json(self._progress) if self._progress.exists() else {"phase": "starting", "durable_step": None}

    def ask_to_stop(self) -> None:
        """The worker: write a checkpoint after this step and end."""
        self._stop.parent.mkdir(exist_ok=True)
        self._stop.touch()

    def asked_to_stop(self) -> bool:
        """The trainer: whether to end."""
        return self._stop.exists()

    def ended(self, error: McpoError) -> None:
        """The process: why it ends, where an error of ours says it."""
        kind = "interrupted" if isinstance(error, Interrupted) else "failed"
        write_atomic(self._ending, json.dumps({"kind": kind, "message": error.message, "fix": error.fix}))

    def ending(self) -> dict[str, Any] | None:
        """The worker: what `ended` said."""
        return read_json(self._ending) if self._ending.exists() else None
