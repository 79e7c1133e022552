"""Dr. GRPO (arXiv 2503.20783): no division by the standard deviation, none by the response's length.

A = r - mean r; the loss sums -min(r A, clip(r) A) over tokens and divides by B L_max. The paper's formula has no
1/L_max; its released code, verl (`loss_scale_factor`) and TRL (`max_completion_length`) divide by a constant, and so do
we, by the response limit. It scales the step by 1/L_max: compare gradient norms where clipping of gradients is active.
"""

from dataclasses import dataclass
from typing import ClassVar

from mcpo_cli.methods.group_relative import Aggregation, Clipped, GroupRelative


@dataclass(frozen=True)
class DrGrpo(Clipped, GroupRelative):
    """GRPO done right: centred rewards, a constant divisor. Clipping as in the released code, .2/.2."""

    name: ClassVar[str] = "dr_grpo"

    aggregation: Aggregation = "constant"
    """How token losses become one number; a constant divisor is half of the method."""
