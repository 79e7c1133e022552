"""DAPO as the MCPO paper runs it (Section 6.1): clip-higher and the online filter (dynamic sampling)."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from mcpo_cli.methods.group_relative import Clipped, Normalized


@dataclass(frozen=True)
class Dapo(Clipped, Normalized):
    """Dynamic sAmpling Policy Optimization (arXiv 2503.14476), the baseline."""

    name: ClassVar[str] = "dapo"

    clip_high: float = dataclasses.field(default=0.28, metadata={"ge": 0.0})
    dynamic_sampling: bool = True
