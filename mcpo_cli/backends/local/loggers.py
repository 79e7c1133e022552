"""Sends the metrics of an attempt to the trackers of `cluster.loggers`: TensorBoard, W&B, trackio.

A thread of the worker follows the journal's files, so a slow or unreachable tracker does not delay a step. If a tracker
fails, the attempt gets a note and sends it no further rows; the journal has everything. As with verl's loggers, each
attempt is a separate run there, named after the run's id. Accounts and modes come from each tracker's environment
variables (`WANDB_API_KEY`, `WANDB_MODE=offline`).
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.redaction import redact
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import lines_from, read_lines
from mcpo_cli.runs.sanity import evaluated

PROJECT = "mcpo"
EVERY_SECONDS, LAST_SECONDS = 1.0, 60.0
"""Seconds between two reads of the journal, and the limit of the last one."""


class Tracker(Protocol):
    """A run of a tracker; W&B's and trackio's own runs are such."""

    def log(self, metrics: dict[str, float], step: int) -> None:
        """Send the metrics of one global step; steps never decrease."""

    def finish(self) -> None:
        """Send the remaining rows, and end the run."""


class TensorBoard:
    """Event files in the folder `tensorboard` of the attempt. See `Tracker`."""

    def __init__(self, spec: RunSpec, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder / "tensorboard"))
        self._writer.add_text("settings", f"```json\n{json.dumps(_settings(spec), indent=2)}\n```")

    def log(self, metrics: dict[str, float], step: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def finish(self) -> None:
        self._writer.close()


def _wandb(spec: RunSpec, folder: Path) -> Any:
    """A run of W&B, with its files in the attempt's folder."""
    import wandb

    # The worker's output is its log.
    quiet = wandb.Settings(console="off", silent=True)
    return wandb.init(project=PROJECT, name=spec.run_id, config=_settings(spec), dir=str(folder), settings=quiet)


def _trackio(spec: RunSpec, folder: Path) -> Any:
    """A run of trackio, in the folder that its own variables name (`TRACKIO_DIR`)."""
    import trackio

    return trackio.init(PROJECT, name=spec.run_id, config=_settings(spec), embed=False)


TRACKERS: dict[str, Callable[[RunSpec, Path], Tracker]] = {
    "tensorboard": TensorBoard,
    "trackio": _trackio,
    "wandb": _wandb,
}
"""Tracker by its package, which is its name in `cluster.loggers`."""


def _settings(spec: RunSpec) -> dict[str, Any]:
    """The settings that decide the result, without secrets."""
    found: dict[str, Any] = json.loads(redact(json.dumps(spec.identity())))
    return found


@contextmanager
def following(spec: RunSpec, attempt: Attempt) -> Iterator[None]:
    """Send the attempt's metrics to the run's trackers while the block runs, and the last ones when it ends."""
    if not spec.cluster.loggers:
        yield
        return
    follower = _Follower(spec, attempt)
    follower.start()
    try:
        yield
    finally:
        follower.close()


class _Follower(threading.Thread):
    """The thread that reads the journal. A daemon: a tracker that hangs does not keep the process."""

    def __init__(self, spec: RunSpec, attempt: Attempt) -> None:
        super().__init__(daemon=True)
        self.spec, self.attempt = spec, attempt
        self.trackers: dict[str, Tracker] = {}
        self._left = list(spec.cluster.loggers)
        """Trackers that have not failed."""
        self._end = threading.Event()
        self._offset, self._last = 0, int(attempt.status["start_step"])
        self._evaluations: set[Path] = set()

    def run(self) -> None:
        """Send new rows every second until `close`, then a last time."""
        for name in self.spec.cluster.loggers:
            self._call(name, partial(self._open, name))
        while not self._end.wait(EVERY_SECONDS):
            self._send()
        self._send()
        for name, tracker in list(self.trackers.items()):
            self._call(name, tracker.finish)

    def close(self) -> None:
        """Wait for the last metrics to be sent."""
        self._end.set()
        self.join(LAST_SECONDS)
        if self.is_alive():
            self._note(", ".join(self._left), f"not all was sent within {LAST_SECONDS:.0f} s")

    def _open(self, name: str) -> None:
        self.trackers[name] = TRACKERS[name](self.spec, self.attempt.folder)

    def _send(self) -> None:
        for step, metrics in self._new():
            for name, tracker in list(self.trackers.items()):
                self._call(name, partial(tracker.log, metrics, step=step))

    def _new(self) -> list[tuple[int, dict[str, float]]]:
        """The metrics of steps and evaluations since the last call, in the order of their steps."""
        found: list[tuple[int, dict[str, float]]] = []
        for row, end in lines_from(self.attempt.folder / "metrics.jsonl", self._offset):
            found.append((row["step"], row["metrics"]))
            self._last, self._offset = row["step"], end
        for path in sorted((self.attempt.folder / "eval").glob("step_*.jsonl")):
            step = int(path.stem.removeprefix("step_"))
            # A later one was written meanwhile: the next call sends the rows of the steps before it.
            if path not in self._evaluations and step <= self._last:
                self._evaluations.add(path)
                found.append((step, evaluated(read_lines(path))))
        return sorted(found, key=lambda one: one[0])

    def _call(self, name: str, action: Callable[[], None]) -> None:
        """Any error of a tracker ends only that tracker."""
        try:
            action()
        except Exception as error:
            self.trackers.pop(name, None)
            self._left.remove(name)
            self._note(name, redact(f"{type(error).__name__}: {error}"))

    def _note(self, name: str, why: str) -> None:
        self.attempt.note(f"{name} is incomplete ({' '.join(why.split())}); the journal has all metrics")
