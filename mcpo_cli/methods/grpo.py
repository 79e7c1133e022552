"""GRPO without its KL term, as the paper writes it (Eq. 1-2): symmetric clipping, no filter."""

from dataclasses import dataclass
from typing import ClassVar

from mcpo_cli.methods.base import Method


@dataclass(frozen=True)
class Grpo(Method):
    """Group Relative Policy Optimization; every option at the shared default."""

    name: ClassVar[str] = "grpo"
