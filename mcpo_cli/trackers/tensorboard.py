"""TensorBoard: event files in the folder `tensorboard` of an attempt."""

import json
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.trackers import settings


class EventFiles:
    """See `follower.TrackedRun`."""

    def __init__(self, spec: RunSpec, folder: Path) -> None:
        self._writer: Any = SummaryWriter(str(folder / "tensorboard"))
        self._writer.add_text("settings", f"```json\n{json.dumps(settings(spec), indent=2)}\n```")

    def log(self, metrics: dict[str, float], step: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def finish(self) -> None:
        self._writer.close()


begin = EventFiles
