"""The probe of estimators: bias and noise of a method's gradient as an estimate of that of accuracy.

It asks about a method, not about a run: in a world whose responses can all be listed (`estimators/world.py`) the
gradient of expected accuracy is known, and the method's estimates of it are measured with the method's own code.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from mcpo_cli.config.schema import RunSpec, Train
from mcpo_cli.measures.base import Finding, Measure, without_nan
from mcpo_cli.methods import Method
from mcpo_cli.runs import provenance
from mcpo_cli.runs.journal import Journal

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
    plain = dataclasses.replace(train, overlong_cache=0)
    options = (rollouts, rollouts + 1)
    return next((G for G in options if not any(method.contradictions(dataclasses.replace(plain, rollouts=G)))), None)


def row(method: Method, train: Train, condition: Condition) -> dict[str, Any] | None:
    """The measures (see `Moments.measures`) under a condition; None if the method has no groups of that size.

    `batches` is the number that was drawn; 0 if the moments were counted, which is exact.
    """
    from mcpo_cli.measures.estimators.counting import counted
    from mcpo_cli.measures.estimators.estimate import Circumstances
    from mcpo_cli.measures.estimators.sampling import sampled

    rollouts = fitting(method, train, condition.rollouts)
    if rollouts is None:
        return None
    changed: dict[str, Any] = {"sampler_rounding": condition.rounding, "correction": condition.correction}
    where = Circumstances(condition.stale, dataclasses.replace(train, **changed))
    about = {**dataclasses.asdict(condition), "size": rollouts}
    if moments := counted(method, where, rollouts):
        return {**about, "batches": 0, **moments.measures(), "cosine_mean_se": 0.0, "cosine_se": 0.0}
    sample = sampled(method, where, rollouts)
    return {**about, "batches": sample.batches, **sample.measures()}


def _atlas(spec: RunSpec, _: Journal) -> Finding:
    """Measures a run's method without its filter, which chooses the groups that are trained on, as a sampler does.

    Values: at the run's own number of rollouts, or the next lower one of the table, on-policy: `rollouts`,
    `cosine_mean`, `noise`, `cosine`; and `cosine_mean_stale`, `cosine_stale` after 4 gradient steps. Table `atlas`: one
    row per condition, as `row` gives it, with the commit and the processor that it was computed by.
    """
    made = {"commit": (provenance.code_state()["commit"] or "")[:9], "cpu": provenance.processor()}
    rows = [{**one, **made} for condition in conditions() if (one := row(spec.method, spec.train, condition))]
    own = [one for one in rows if not one["rounding"]]
    sizes = [one["rollouts"] for one in own]
    nearest = max((G for G in sizes if spec.train.rollouts >= G), default=min(sizes, default=0))
    at = {one["stale"]: one for one in own if one["rollouts"] == nearest}
    values = {}
    if at:
        values = {name: at[0][name] for name in ("cosine_mean", "noise", "cosine")}
        values |= {f"{name}_stale": at[4][name] for name in ("cosine_mean", "cosine")}
        values["rollouts"] = at[0]["size"]
    return Finding(without_nan(values), {"atlas": rows})


MEASURE = Measure(
    name="atlas",
    question="How far is a method's gradient from that of expected accuracy, in the mean and in a single estimate?",
    needs=(),
    shows=("rollouts", "cosine_mean", "noise", "cosine", "cosine_mean_stale", "cosine_stale"),
    measure=_atlas,
    # Penalties on length are not part of accuracy; an odd number of rollouts, as some methods have a pivot.
    settings=("train.overlong_cache=0", "train.rollouts=17"),
    every="method",
)
