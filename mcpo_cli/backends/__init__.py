"""The training engines, `local` (pure torch, one process) and `verl` (Ray, FSDP2 and vLLM), and their interface."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

from mcpo_cli.config.cost import Estimate
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.attempts import Attempt

Stop = Callable[[], bool]
"""True if the run was asked to end; backends check it at every global step."""


class Backend(Protocol):
    """Trains a run and writes its journal, and only that."""

    preloads: str
    """Module with its heavy imports, which runs of one plan load once; empty for a backend that starts processes."""
    grace: float | None
    """Seconds after which a run that was asked to stop is ended at any point; None: it may finish its checkpoint."""
    fetches: bool
    """True if `run` fetches an existing model by itself; otherwise the model's files must be here before."""

    def check_spec(self, spec: RunSpec) -> None:
        """Raise ConfigError if no machine can train `spec` with this backend, whatever its model. No downloads."""

    def check_model(self, spec: RunSpec, folder: Path) -> None:
        """Raise ConfigError if this backend cannot train the existing model of `spec`, whose files are in `folder`."""

    def check_machine(self, expected: Estimate) -> None:
        """Raise ConfigError if this machine lacks what the run needs. Starts no process, does not import torch."""

    def preview(self, spec: RunSpec, home: Path) -> dict[str, Any]:
        """The process that `run` would start below `home`, as plain data: `command` (list), `environment` and `config`.

        Empty for a backend that starts no process. Reads no files and needs no packages of the backend.
        """

    def run(self, spec: RunSpec, attempt: Attempt, stop: Stop) -> None:
        """Train to the end, from the checkpoint of the step that the attempt starts after; 0 is the base policy.

        Raises:
            Interrupted: `stop` returned true; a checkpoint was written.
            RunFailed: the run cannot continue; the message gives the reason.
        """

    def kept(self, run_dir: Path) -> list[int]:
        """The global steps of the run's complete checkpoints, in order."""

    def export(self, spec: RunSpec, run_dir: Path, step: int, target: Path) -> None:
        """Write the policy of the checkpoint of `step`, which `kept` lists, to `target` as transformers loads it.

        Raises:
            ConfigError: the model that the run began with is gone.
        """


def get(name: str) -> Backend:
    """The backend called `name`; heavy imports wait until it runs."""
    return cast(Backend, importlib.import_module(f"mcpo_cli.backends.{name}").BACKEND)
