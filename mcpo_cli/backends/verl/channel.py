"""Messages between our worker process and verl's trainer: small files in the attempt's folder.

They are files because the trainer is a Ray actor and may run on another machine that shares the disk.
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
        """Called by the trainer: report the phase and the last step that a checkpoint of this attempt covers."""
        write_atomic(self._progress, json.dumps({"phase": phase, "durable_step": durable_step}))

    def progress(self) -> dict[str, Any]:
        """Called by the worker: what the trainer reported last."""
        return read_json(self._progress) if self._progress.exists() else {"phase": "starting", "durable_step": None}

    def ask_to_stop(self) -> None:
        """Called by the worker: ask the trainer to write a checkpoint after this step and end."""
        self._stop.parent.mkdir(exist_ok=True)
        self._stop.touch()

    def asked_to_stop(self) -> bool:
        """Called by the trainer: whether it was asked to end."""
        return self._stop.exists()

    def ended(self, error: McpoError) -> None:
        """Called by the training process: record the McpoError that ends it."""
        kind = "interrupted" if isinstance(error, Interrupted) else "failed"
        write_atomic(self._ending, json.dumps({"kind": kind, "message": error.message, "fix": error.fix}))

    def ending(self) -> dict[str, Any] | None:
        """Called by the worker: what `ended` recorded, None if nothing."""
        return read_json(self._ending) if self._ending.exists() else None
