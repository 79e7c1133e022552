"""verl on Ray: FSDP2 and vLLM on GPUs. Importing this imports neither verl, torch nor ray."""

from pathlib import Path
from typing import Any

from mcpo_cli.backends.base import Stop
from mcpo_cli.backends.verl import checkpoint, checks, overrides
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError
from mcpo_cli.runs.attempts import Attempt


class Verl:
    """See `mcpo_cli.backends.base.Backend`."""

    def check(self, spec: RunSpec) -> None:
        """Everything a start needs is there: verl, GPUs, model, data, disk."""
        checks.check(spec)

    def preview(self, spec: RunSpec, home: Path) -> dict[str, Any]:
        """The command, the environment and verl's settings."""
        return overrides.preview(spec, home)

    def resume_step(self, run_dir: Path) -> int:
        """The step of the newest whole checkpoint."""
        return checkpoint.newest(run_dir / "checkpoints")

    def run(self, spec: RunSpec, attempt: Attempt, stop: Stop) -> None:
        """Train in processes of verl's own; see `launch.run`."""
        from mcpo_cli.backends.verl import launch

        launch.run(spec, attempt, stop)

    def kept(self, run_dir: Path) -> list[int]:
        """The steps of the whole checkpoints."""
        return checkpoint.whole(run_dir / "checkpoints")

    def observe(self, spec: RunSpec, attempt: Attempt, run_dir: Path, steps: list[int], prompts: int) -> None:
        """Not here: verl's probes run beside training."""
        raise ConfigError(
            f"{spec.run_id} was trained by verl, whose checkpoints cannot be probed: its probes run beside training",
            fix="mcpo probe PROBE backend=verl KEY=VALUE ...",
        )


BACKEND = Verl()
