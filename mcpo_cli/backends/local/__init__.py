"""The local engine: causal LMs on one machine, from scratch or pretrained, in pure torch."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from mcpo_cli import pretrained
from mcpo_cli.backends import Stop
from mcpo_cli.config.cost import Estimate
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError, StoreError
from mcpo_cli.home import location
from mcpo_cli.machine import GIB, gigabytes
from mcpo_cli.runs import folders, origins, provenance
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.tasks import closed

BFLOAT16 = ("amx_bf16", "avx512_bf16")
"""Instructions that multiply in bfloat16, the faster ones first."""
RECORDS_BYTES = 1 << 22
"""Least room for the records of a run and for the MLflow store."""


@dataclass(frozen=True)
class Free:
    """Memory and disk that are free on this machine."""

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


def on_cpu(spec: RunSpec) -> bool:
    """Whether a run of `spec` would compute on this machine's processor."""
    return spec.compute.device != "cuda" and not Path("/proc/driver/nvidia").exists()


def formats(spec: RunSpec) -> str:
    """The number formats of a run of `spec` on this processor, and whether it has instructions for another one."""
    native = next((name for name in BFLOAT16 if name in provenance.instructions()), "")
    is_reduced = spec.compute.dtype == "bfloat16"
    if is_reduced and not native:
        return "warning: products in bfloat16, for which this processor has no instructions: float32 is faster here"
    if is_reduced:
        return f"products in bfloat16 ({native}); weights, attention and log-probabilities in float32"
    if native:
        return f"products in float32; this processor has {native}: compute.dtype=bfloat16 is faster, with other run ids"
    return "products in float32"


def check_room(expected: Estimate) -> None:
    """Raise ConfigError if memory or the device is missing for a run, and StoreError if the disk is full."""
    spec, room, need = expected.spec, free(), expected.memory
    if spec.model.path and on_cpu(spec) and need > room.memory:
        raise ConfigError(
            f"model={spec.model.name} with {spec.train.prompts} prompts x {spec.train.rollouts} rollouts of up to "
            f"{spec.train.max_response} tokens needs about {need / GIB:.1f} GiB of memory; "
            f"{room.memory / GIB:.1f} GiB are free",
            fix=f"compute.micro_batch_tokens={max(64, spec.compute.micro_batch_tokens // 4)}, fewer "
            "train.rollouts, model.lora_rank=16, or a smaller model",
        )
    if (need := expected.disk + RECORDS_BYTES) > room.disk:
        savings = "compute.checkpoints=1, model.lora_rank=16, or " if spec.model.path else ""
        raise StoreError(
            f"model={spec.model.name} needs about {gigabytes(need)} on the disk of {room.folder}, for records, "
            f"{spec.compute.checkpoints} checkpoints and one being written; {gigabytes(room.disk)} are free",
            fix=f"make room there, or {savings}MCPO_HOME=FOLDER on another disk",
            code="cannot_write",
        )
    if spec.compute.device == "cuda" and not Path("/proc/driver/nvidia").exists():
        raise ConfigError("compute.device=cuda: this machine has no NVIDIA driver", fix="compute.device=auto")


class Local:
    """See `mcpo_cli.backends.Backend`. Heavy imports happen inside `run`."""

    preloads = "mcpo_cli.backends.local.train"
    grace = 6.0
    fetches = False

    def check_spec(self, spec: RunSpec) -> None:
        """Raise ConfigError if it cannot train the task without an existing model."""
        if not spec.model.path:
            closed(spec.task)

    def check_model(self, spec: RunSpec, folder: Path) -> None:
        """Raise ConfigError if it cannot train this model, or not with prompts and responses as long as these."""
        longest = spec.train.max_prompt + spec.train.max_response
        pretrained.check(spec.model, folder, longest=longest, chat=spec.task.needs_chat_template)

    def check_machine(self, expected: Estimate) -> None:
        """Raise ConfigError if memory, the device or the problems are missing, and StoreError if the disk is full."""
        expected.spec.task.check()
        check_room(expected)

    def preview(self, spec: RunSpec, home: Path) -> dict[str, Any]:
        """Empty: it trains in the worker's own process."""
        return {}

    def run(self, spec: RunSpec, attempt: Attempt, stop: Stop) -> None:
        """Train; see `train.run`."""
        from mcpo_cli.backends.local import train

        train.run(spec, attempt, stop)

    def kept(self, run_dir: Path) -> list[int]:
        """The steps of the complete checkpoints."""
        return origins.kept(run_dir)

    def export(self, spec: RunSpec, run_dir: Path, step: int, target: Path) -> None:
        """Write the weights of a checkpoint; see `initial_policy.export`."""
        from mcpo_cli.backends.local import initial_policy

        initial_policy.export(spec, folders.checkpoints(run_dir)[step], target)


BACKEND = Local()
