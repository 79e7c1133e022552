"""GRPO (arXiv 2402.03300) without its KL term, as the MCPO paper writes it (Eq. 1-2): symmetric clipping, no filter."""

from dataclasses import dataclass
from typing import ClassVar

from mcpo_cli.methods.group_relative import Clipped, Normalized


@dataclass(frozen=True)
class Grpo(Clipped, Normalized):
    """Group Relative Policy Optimization; every option at the shared default."""

    name: ClassVar[str] = "grpo"
