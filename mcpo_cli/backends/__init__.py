"""The engines that train: `local` (pure torch, one process)."""

import importlib
from typing import cast

from mcpo_cli.backends.base import Backend
from mcpo_cli.config.schema import RunSpec


def get(name: str) -> Backend:
    """The backend of that name; its heavy imports happen when it runs."""
    return cast(Backend, importlib.import_module(f"mcpo_cli.backends.{name}").BACKEND)


def check(spec: RunSpec) -> None:
    """Raises ConfigError where `spec` cannot run on this machine."""
    get(spec.backend).check(spec)
