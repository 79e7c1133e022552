"""The verl backend: Ray, FSDP2 and vLLM on GPUs. Importing it does not import verl, torch or ray."""

from pathlib import Path
from typing import Any

from mcpo_cli import weight_files
from mcpo_cli.backends import Stop
from mcpo_cli.backends.verl import checkpoint, checks, overrides
from mcpo_cli.config.cost import Estimate
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.attempts import Attempt


class Verl:
    """See `mcpo_cli.backends.Backend`."""

    preloads = ""
    grace = None
    fetches = True

    def check_spec(self, spec: RunSpec) -> None:
        """Raise ConfigError unless verl trains this task, sampler and method, and accepts `cluster.verl`."""
        checks.check_spec(spec)

    def check_model(self, spec: RunSpec, folder: Path) -> None:
        """Raise ConfigError if weight files are missing or damaged; `check_machine` compares sizes and window.

        verl trains what transformers loads, so architecture and tokenizer are left to it.
        """
        weight_files.stored(spec.model.name, folder)

    def check_machine(self, expected: Estimate) -> None:
        """Raise ConfigError unless verl, GPUs, model, data and disk space are there."""
        checks.check(expected.spec)

    def preview(self, spec: RunSpec, home: Path) -> dict[str, Any]:
        """The command, the environment and verl's settings."""
        return overrides.preview(spec, home)

    def run(self, spec: RunSpec, attempt: Attempt, stop: Stop) -> None:
        """Train in separate verl processes; see `launch.run`."""
        from mcpo_cli.backends.verl import launch

        launch.run(spec, attempt, stop)

    def kept(self, run_dir: Path) -> list[int]:
        """The steps of the complete checkpoints."""
        return checkpoint.complete(run_dir / "checkpoints")

    def export(self, spec: RunSpec, run_dir: Path, step: int, target: Path) -> None:
        """Assemble the policy from the ranks' shards; see `checkpoint.export`."""
        checkpoint.export(run_dir / "checkpoints", step, target, spec)


BACKEND = Verl()
