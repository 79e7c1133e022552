"""The math of methods, shared by every backend. It uses tensor methods only and never imports torch at run time.

>>> from mcpo_cli.methods import get, query_weight
>>> get("mcpo", beta=1.0, delta=0.01)
"""

import math
from functools import cache
from typing import Any

from mcpo_cli import plugins
from mcpo_cli.convert import choose
from mcpo_cli.methods.base import (
    Floats,
    Method,
    MiniBatch,
    Report,
    Signals,
    State,
    Step,
    Term,
    TokenBatch,
    TokenLoss,
    reduce,
)
from mcpo_cli.methods.group_relative import Clipped, GroupRelative, Normalized, PolicyGradient, Standardized
from mcpo_cli.plugins import Found

__all__ = [
    "Clipped",
    "GroupRelative",
    "Method",
    "MiniBatch",
    "Normalized",
    "PolicyGradient",
    "Report",
    "Signals",
    "Standardized",
    "State",
    "Step",
    "Term",
    "TokenBatch",
    "TokenLoss",
    "get",
    "query_weight",
    "reduce",
    "registry",
]


@cache
def registry() -> Found[type[Method]]:
    """All methods by name, of this package and of plug-ins. Raises ConfigError when two share a name."""
    return plugins.classes("methods", __name__, Method)


def get(name: str, **options: Any) -> Method:
    """The method `name` with `options` in place of its defaults.

    Raises:
        ConfigError: unknown method, unknown option, or an option value out of its range.
    """
    return choose(registry(), "method", name, options, fix="mcpo components list method")


def query_weight(method: str | Method, p: Floats, rollouts: float = math.inf) -> Floats:
    """W(p), the weight of a prompt with rollout accuracy `p` (float, array or tensor) under `method`.

    rollouts: G, on which the curve of a few methods depends; without it, the limit of large groups.

    NaN for a method that has no such curve. Source: Eq. 6 (GRPO, DAPO) and Eq. 14 with proof A.1 (MCPO); 0 at p = 0
    and p = 1, where no advantage exists.
    """
    return (get(method) if isinstance(method, str) else method).query_weight(p, rollouts)
