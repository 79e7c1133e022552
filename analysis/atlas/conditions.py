"""Bias and noise of a method's gradient as an estimate of that of expected accuracy, under each condition.

They are about a method, not about a run: in a world whose responses can all be listed (`world.py`) the gradient of
expected accuracy is known, and the method's estimates of it are measured with the method's own code.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from mcpo_cli.config.schema import Train
from mcpo_cli.methods import Method
from mcpo_cli.runs import provenance

from .counting import counted
from .estimate import Circumstances
from .sampling import sampled

ROLLOUTS = (2, 4, 8, 16, 32, 64)
STALE = (0, 4, 16)
"""Gradient steps between sampling and the estimate."""
SAMPLER_AT, SAMPLER_STALE = 16, (0, 4)
"""Rollouts, and gradient steps since, of the estimates from an inexact sampler."""
ROUNDING = 1.0
"""`train.sampler_rounding` of those estimates."""
CORRECTIONS = ("none", "token-truncate", "sequence-truncate")
"""`train.correction` of those estimates, with the bounds that the settings have."""


@dataclass(frozen=True)
class Condition:
    """The condition under which the estimates of one row are made."""

    rollouts: int
    stale: int
    rounding: float = 0.0
    correction: str = "none"


def conditions() -> list[Condition]:
    """All of them: an exact sampler at every G and k, then an inexact one without and with corrections."""
    exact = [Condition(rollouts, stale) for rollouts in ROLLOUTS for stale in STALE]
    return exact + [Condition(SAMPLER_AT, stale, ROUNDING, way) for stale in SAMPLER_STALE for way in CORRECTIONS]


def fitting(method: Method, train: Train, rollouts: int) -> int | None:
    """`rollouts`, or one more if the method refuses that number (it may need a pivot); None if it refuses both."""
    base = dataclasses.replace(train, overlong_cache=0)
    options = (rollouts, rollouts + 1)
    return next((G for G in options if not any(method.contradictions(dataclasses.replace(base, rollouts=G)))), None)


def row(method: Method, train: Train, condition: Condition) -> dict[str, Any] | None:
    """The measures (see `Moments.measures`) under a condition; None if the method has no groups of that size.

    `batches` is the number that was drawn; 0 if the moments were counted, which is exact.
    """
    rollouts = fitting(method, train, condition.rollouts)
    if rollouts is None:
        return None
    changes: dict[str, Any] = {"sampler_rounding": condition.rounding, "correction": condition.correction}
    case = Circumstances(condition.stale, dataclasses.replace(train, **changes))
    labels = {**dataclasses.asdict(condition), "size": rollouts}
    if moments := counted(method, case, rollouts):
        return {**labels, "batches": 0, **moments.measures(), "cosine_mean_se": 0.0, "cosine_se": 0.0}
    sample = sampled(method, case, rollouts)
    return {**labels, "batches": sample.batches, **sample.measures()}


def rows(arm: str, method: Method, train: Train) -> list[dict[str, Any]]:
    """One row per condition that the method takes, as `row` gives it, with the commit and the processor."""
    labels = {"arm": arm, "commit": (provenance.code_state()["commit"] or "")[:9], "cpu": provenance.processor()}
    return [{**labels, **values} for condition in conditions() if (values := row(method, train, condition))]
