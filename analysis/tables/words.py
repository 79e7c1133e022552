"""Numbers of a comparison as text."""

import math
from collections.abc import Iterator

from mcpo_cli.analysis.comparison import Comparison
from mcpo_cli.analysis.equal_cost import AVERAGE
from mcpo_cli.statistics import power
from mcpo_cli.statistics.effects import Estimate
from mcpo_cli.statistics.stats import Interval


def p_value(value: float) -> str:
    """`0.0312`, or `-` where there is no test."""
    return "-" if math.isnan(value) else f"{value:.4f}"


def deviation(value: float) -> str:
    """A standard deviation, or `-` where it is not known."""
    return "-" if math.isnan(value) else f"{value:.3f}"


def count(seeds: int | None) -> str:
    """A number of seeds, as `power.seeds_needed` gives it."""
    return f">{power.MOST_SEEDS}" if seeds is None else str(seeds)


def change(effect: Interval) -> str:
    """`+0.031 ± 0.020`, or the mean alone where it has no interval."""
    return f"{effect.mean:+.3f}" + ("" if math.isnan(effect.half_width) else f" ± {effect.half_width:.3f}")


def share(found: Estimate) -> str:
    """`0.412 [.381, .443]`, or the mean alone where there are too few seeds for an interval."""
    if math.isnan(found.low):
        return f"{found.value:.3f}"
    low, high = (f"{bound:.3f}".removeprefix("0") for bound in (found.low, found.high))
    return f"{found.value:.3f} [{low}, {high}]"


def number(value: float) -> float | None:
    """`value`; None for NaN."""
    return None if math.isnan(value) else value


def against_before(compared: Comparison) -> Iterator[str]:
    """A sentence for each model: the headline's metric before training, and the arms that end below that."""
    for model in compared.models:
        start = [
            one.seeds.value
            for one in compared.before
            if (one.model, one.tier) == (model, AVERAGE) and one.metric == compared.metric
        ]
        gains = [compared.gain(compared.axes[0], model, arm) for arm in compared.arms_of(model)]
        below = [f"{one.arm} ({change(one.effect)})" for one in gains if one.loses]
        single = len(start) == 1
        began = f"Before training {compared.metric} is {start[0]:.3f}" if single else "Arms start from several policies"
        ends = "end" if len(below) > 1 else "ends"
        yield f"{began} ({model}); {', '.join(below) or 'no arm'} {ends} below that."
