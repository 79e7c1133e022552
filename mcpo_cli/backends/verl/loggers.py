"""verl's loggers (`cluster.loggers`): they get the metrics that the journal gets, as soon as it has them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcpo_cli.config.schema import RunSpec

FOLDERS = {"TENSORBOARD_DIR": "tensorboard", "WANDB_DIR": ".", "SWANLAB_LOG_DIR": "swanlab"}
"""Environment variables that say where loggers write, and the place in the folder of an attempt."""


class Loggers:
    """The loggers of one attempt. Each takes the attempt for a run of its own, named after the run's id."""

    def __init__(self, spec: RunSpec, attempt_dir: Path) -> None:
        self._tracking: Any = None
        if spec.cluster.loggers:
            from verl.utils.tracking import Tracking

            os.environ.update({variable: str(attempt_dir / place) for variable, place in FOLDERS.items()})
            # verl looks for a proxy of W&B's in `trainer`.
            settings = {**spec.identity(), "trainer": {}}
            self._tracking = Tracking("mcpo", spec.run_id, list(spec.cluster.loggers), settings)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of a global step or of the evaluation after it."""
        if self._tracking:
            self._tracking.log(data=dict(metrics), step=step)

    def close(self) -> None:
        """Send what is left; a second call does nothing."""
        if self._tracking:
            self._tracking.finish()
