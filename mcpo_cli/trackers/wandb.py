"""W&B. The account and the mode come from its environment variables: `WANDB_API_KEY`, `WANDB_MODE=offline`."""

from pathlib import Path

import wandb

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.trackers import PROJECT, settings
from mcpo_cli.trackers.follower import TrackedRun


def begin(spec: RunSpec, folder: Path) -> TrackedRun:
    """A run with its files in `folder`, the folder of an attempt."""
    # The worker's output is its log.
    quiet = wandb.Settings(console="off", silent=True)
    run: TrackedRun = wandb.init(
        project=PROJECT, name=spec.run_id, config=settings(spec), dir=str(folder), settings=quiet
    )
    return run
