"""trackio. Its files are in the folder that its environment variable names (`TRACKIO_DIR`)."""

from pathlib import Path

import trackio

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.trackers import PROJECT, settings
from mcpo_cli.trackers.follower import TrackedRun


def begin(spec: RunSpec, _folder: Path) -> TrackedRun:
    """A run named after ours."""
    run: TrackedRun = trackio.init(PROJECT, name=spec.run_id, config=settings(spec), embed=False)
    return run
