"""Whether this machine has the memory and disk that the local engine needs for an existing model."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

from mcpo_cli.config import workload
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import location
from mcpo_cli.machine import GIB


@dataclass(frozen=True)
class Free:
    """What this machine has left for runs."""

    memory: float
    """Bytes of memory that are free."""
    disk: float
    """Bytes that are free on the disk of `folder`."""
    folder: Path
    """The folder in which runs are kept, or the nearest one above it that exists."""


def free() -> Free:
    """Memory and disk that are free on this machine now."""
    folder = next(path for path in (location(), *location().parents) if path.exists())
    return Free(float(psutil.virtual_memory().available), float(shutil.disk_usage(folder).free), folder)


def check(spec: RunSpec) -> None:
    """Raise ConfigError if the run cannot fit into the memory or onto the disk that are free here."""
    here, needed = free(), workload.memory(spec)
    if spec.compute.device != "cuda" and not Path("/proc/driver/nvidia").exists() and needed > here.memory:
        raise ConfigError(
            f"model={spec.model.name} with {spec.train.prompts} prompts x {spec.train.rollouts} rollouts of up to "
            f"{spec.train.max_response} tokens needs about {needed / GIB:.1f} GiB of memory; {here.memory / GIB:.1f} "
            "GiB are free",
            fix=f"compute.micro_batch_tokens={max(64, spec.compute.micro_batch_tokens // 4)}, fewer train.rollouts, "
            "model.lora_rank=16, or a smaller model",
        )
    if (needed := workload.disk(spec)) > here.disk:
        raise ConfigError(
            f"model={spec.model.name} needs about {needed / GIB:.1f} GiB on the disk of {here.folder}, for "
            f"{spec.compute.checkpoints} checkpoints and one being written; {here.disk / GIB:.1f} GiB are free",
            fix="compute.checkpoints=1, model.lora_rank=16, or MCPO_HOME=FOLDER on a larger disk",
        )
