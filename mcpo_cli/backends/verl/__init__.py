"""The verl backend: Ray, FSDP2 and vLLM on GPUs. Importing it does not import verl, torch or ray."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from mcpo_cli.backends import Stop
from mcpo_cli.backends.verl import checkpoint, checks, overrides
from mcpo_cli.config.branching import Trunk
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.differences import Compared


class Verl:
    """See `mcpo_cli.backends.Backend`."""

    preloads = ""
    grace = None
    fetches = True

    def check_spec(self, spec: RunSpec) -> None:
        """Raise ConfigError unless verl trains this task, this method, and takes its own settings."""
        checks.check_spec(spec)

    def check_model(self, spec: RunSpec, folder: Path) -> None:
        """verl trains what transformers loads; `check` compares sizes and window."""

    def check(self, spec: RunSpec) -> None:
        """Raise ConfigError unless verl, GPUs, model, data and disk space are there."""
        checks.check(spec)

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

    def observe(self, spec: RunSpec, attempt: Attempt, run_dir: Path, steps: list[int], prompts: int) -> None:
        """Not supported: verl's probes run during training."""
        raise ConfigError(
            f"{spec.run_id} was trained by verl: probes run during its training, not on its checkpoints",
            fix="mcpo probe PROBE backend=verl KEY=VALUE ...",
        )

    def copy_state(self, run_dir: Path, step: int, attempt: Attempt) -> None:
        """Not supported: a checkpoint holds the state of all ranks."""
        raise ConfigError(f"{run_dir.name}: backend=verl cannot fork a run", fix="backend=local")

    def repeat(self, spec: RunSpec, attempt: Attempt, stop: Stop, steps: Collection[int]) -> None:
        """Not supported: the order in which vLLM batches requests decides the bits of a step."""
        raise ConfigError(
            f"{spec.run_id} was trained by verl: how its rollout engine batches requests decides the bits of a step, "
            "so no step can be trained again",
            fix=f"mcpo runs show {spec.run_id}",
        )

    def compare_states(self, recorded: Path, repeated: Path, step: int, *, exactly: bool) -> Compared:
        """Not supported, as `repeat`."""
        raise ConfigError(f"{recorded.name}: backend=verl cannot repeat a step", fix="backend=local")

    def branch(self, trunk: Trunk, attempt: Attempt, run_dir: Path, step: int) -> None:
        """Not supported: each arm would need the state of all ranks."""
        raise ConfigError(f"{trunk.spec.run_id}: backend=verl cannot branch from its states", fix="backend=local")


BACKEND = Verl()
