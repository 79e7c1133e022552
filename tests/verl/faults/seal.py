"""A second checkpoint that cannot be completed once the records of its step are written."""

from pathlib import Path

from mcpo_cli.backends.verl import checkpoint
from tests.verl import cpu

_seal = checkpoint.seal


def _seal_first(root: Path, step: int) -> None:
    if step == 2:
        raise OSError(28, "No space left on device")
    _seal(root, step)


checkpoint.seal = _seal_first
__all__ = ["cpu"]
