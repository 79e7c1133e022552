"""The training engines: `local` (pure torch, one process) and `verl` (Ray, FSDP2 and vLLM)."""

import importlib
from typing import cast

from mcpo_cli.backends.base import Backend
from mcpo_cli.config.schema import RunSpec


def get(name: str) -> Backend:
    """The backend called `name`; heavy imports wait until it runs."""
    return cast(Backend, importlib.import_module(f"mcpo_cli.backends.{name}").BACKEND)


def check(spec: RunSpec) -> None:
    """Raises ConfigError if `spec` cannot run on this machine."""
    get(spec.backend).check(spec)
