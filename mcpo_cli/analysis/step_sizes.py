"""Effects of methods as equivalent changes of the baseline's learning rate: `mcpo compare --as-step-size`.

The grid is the baseline at several learning rates, all other settings equal. An arm at some rate has the
outcome that the baseline would have at another rate; their quotient is the effect as a step size.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mcpo_cli.analysis import render
from mcpo_cli.analysis.comparison import Choice, Comparison, Row, compare, records
from mcpo_cli.analysis.equal_cost import UNITS
from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import PAIR, Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.render import Columns, Grid
from mcpo_cli.config.arm_names import SEEDS
from mcpo_cli.config.plan import Plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError
from mcpo_cli.statistics import stats
from mcpo_cli.statistics.stats import LEAST, Floats
from mcpo_cli.statistics.step_size import FEWEST, StepSize, equal_step

RATE = "train.lr"
OUTSIDE, NOT_MONOTONE = "outside", "not monotone"
NOTES = (
    "times the rate: the learning rate at which the baseline has the arm's score, divided by the arm's own rate; below "
    "1 the arm does what a smaller step does.",
    "The 95 % interval holds every rate at which a paired t-test over seeds keeps that baseline and arm are equal "
    "(Fieller's method), so it has the uncertainty of both. An end at < or > lies beyond the grid.",
    "Between two rates of the grid the baseline's score is taken to be a straight line over the logarithm of the rate.",
    "effect: the arm minus the baseline at the same rate, ± half a 95 % t-interval; - where the grid lacks that rate.",
)


@dataclass(frozen=True)
class Curve:
    """The baseline on one model at one budget, at the learning rates of the grid."""

    at: str
    model: str
    rate_C: Floats
    arms: Sequence[str]
    score: pd.DataFrame
    """One column per arm of the plan, one row per pair of base policy and seed."""

    @property
    def score_SC(self) -> Floats:
        """The scores of the grid."""
        return self.score[list(self.arms)].to_numpy(dtype=np.float64)


def artifact(plan: Plan, name: str, choice: Choice) -> Artifact:
    """The artifact `name` that expresses the arms of a plan as step sizes of its baseline."""
    title = "Effects as changes of the learning rate"

    def build(data: Mapping[str, Runs]) -> Product:
        return product(f"{name}: {title}", compare(data[plan.suite], choice))

    return Artifact(name, title, "beyond", (plan.suite,), build)


def product(title: str, compared: Comparison) -> Product:
    """Table, figure and tidy data: one row for each arm, model and budget.

    Raises:
        ConfigError: the grid has too few learning rates or seeds, or there is no other arm.
    """
    found = list(curves(compared))
    rows = [row for curve in found for row in equivalents(curve, compared)]
    columns: Columns = {
        "arm": "arm",
        "model": "model",
        "at equal": lambda row: UNITS[row["at"]],
        "rate": lambda row: f"{row['rate']:g}",
        "effect": lambda row: "-" if math.isnan(row["effect"]) else render.change(row["effect"], row["half_width"]),
        "times the rate": lambda row: render.number(row["factor"], ".2f"),
        "95 % interval": _interval,
    }
    grids = [Grid.of(f"{compared.metric} of each arm as a learning rate of the baseline", rows, columns, labels=3)]
    grids.append(_grid(found, compared.metric))
    sentence = " ".join(_sentence(row, compared.metric) for row in rows if row["at"] == compared.axes[0])
    figure = _figure(found, rows, compared.metric)
    return Product(title, sentence, pd.DataFrame(rows).drop(columns="grid"), grids, list(NOTES), figure)


def curves(compared: Comparison) -> Iterator[Curve]:
    """The baseline's grid, by budget and model.

    Raises:
        ConfigError: see `product`.
    """
    arms = _grid_arms(compared)
    for at in compared.shown_axes:
        for model in compared.models:
            own = compared.curves[(compared.curves["at"] == at) & (compared.curves["model"] == model)]
            last = own[own["x"] == own["x"].max()]
            score = last.pivot(index=PAIR, columns="arm", values="value").dropna()
            if len(score) < LEAST:
                raise ConfigError(
                    f"{len(score)} seeds on {model} have a run of every arm; a learning rate that does the same needs "
                    f"{LEAST}",
                    fix=f"{compared.plan.command} seed=0,1,2",
                )
            yield Curve(at, model, np.array([*arms.values()]), [*arms], score)


def _grid_arms(compared: Comparison) -> dict[str, float]:
    """The baseline's arms by learning rate, rising."""
    settings = {cell.arm: _but_rate(cell.spec) for cell in reversed(compared.plan.cells)}
    rates = {cell.arm: cell.spec.train.lr for cell in compared.plan.cells}
    same = [arm for arm, own in settings.items() if own == settings[compared.baseline]]
    listed = ", ".join(f"{rates[arm]:g}" for arm in sorted(same, key=rates.__getitem__))
    if len(same) < FEWEST:
        raise ConfigError(
            f"{compared.baseline} is here at the learning rates {listed}; a curve needs {FEWEST}",
            fix=f"{RATE}={','.join(f'{factor * rates[compared.baseline]:g}' for factor in (0.5, 1, 2))}, trained and "
            "compared with the same words",
        )
    if len(same) == len(settings):
        raise ConfigError(
            f"all arms are {compared.baseline} at another learning rate ({listed}); there is no other arm to express",
            fix=f"method=dapo,mcpo {RATE}=...",
        )
    return {arm: rates[arm] for arm in sorted(same, key=rates.__getitem__)}


def _but_rate(spec: RunSpec) -> dict[str, Any]:
    """The settings that the arms of a grid share; its models have separate columns."""
    settings = spec.flat_identity(later_too=True)
    return {key: own for key, own in settings.items() if key not in {*SEEDS, RATE} and not key.startswith("model.")}


def equivalents(curve: Curve, compared: Comparison) -> Iterator[Row]:
    """One row per other arm: its effect, and the factor of the learning rate with the same effect.

    Columns: model, arm, at, metric, rate, seeds, score, effect, half_width (of the effect's 95 % interval), factor, low
    (0: below the grid), high (infinite: above it), lacks (OUTSIDE or NOT_MONOTONE: why there is no factor; else empty),
    grid (the baseline's scores by learning rate).
    """
    rates = {cell.arm: cell.spec.train.lr for cell in compared.plan.cells}
    for arm in compared.arms:
        if arm in curve.arms:
            continue
        y_S, rate = curve.score[arm].to_numpy(dtype=np.float64), rates[arm]
        equal = equal_step(curve.rate_C, curve.score_SC, y_S)
        found = equal or StepSize(math.nan, math.nan, math.nan)
        at_rate = np.flatnonzero(curve.rate_C == rate)
        effect = stats.paired_t(y_S - curve.score_SC[:, at_rate[0]]) if len(at_rate) else None
        yield {
            "model": curve.model,
            "arm": arm,
            "at": curve.at,
            "metric": compared.metric,
            "rate": rate,
            "seeds": len(y_S),
            "score": float(y_S.mean()),
            "effect": effect.mean if effect else math.nan,
            "half_width": effect.half_width if effect else math.nan,
            "factor": found.size / rate,
            "low": found.low / rate,
            "high": found.high / rate,
            "lacks": _status(equal),
            "grid": _listed(curve),
        }


def _status(found: StepSize | None) -> str:
    if found is None:
        return NOT_MONOTONE
    return OUTSIDE if math.isnan(found.size) else ""


def _listed(curve: Curve) -> str:
    """The grid in words: `0.0001: 0.312, 0.0002: 0.401`."""
    means = curve.score_SC.mean(0)
    return ", ".join(f"{rate:g}: {mean:.3f}" for rate, mean in zip(curve.rate_C, means, strict=True))


def _interval(row: Mapping[str, Any]) -> str:
    """`1.1 to 2.0`, with `<` or `>` at an end beyond the grid; `none` if no rate of the grid is in the interval."""
    if row["lacks"] == NOT_MONOTONE:
        return "-"
    if math.isnan(row["low"]):
        return "none"
    low = "<" if row["low"] == 0 else f"{row['low']:.2f}"
    high = ">" if math.isinf(row["high"]) else f"{row['high']:.2f}"
    return f"{low} to {high}"


def _sentence(row: Row, metric: str) -> str:
    arm = f"{row['arm']} on {row['model']}"
    if row["lacks"] == NOT_MONOTONE:
        return (
            f"{arm}: no step size can be named, as the baseline's {metric} neither rises nor falls all along its "
            f"learning rates ({row['grid']})."
        )
    if row["lacks"] == OUTSIDE:
        kept = "" if math.isnan(row["low"]) else f"; factors that the 95 % interval keeps: {_interval(row)}"
        return (
            f"{arm}: no step size of the grid does the same: its {metric} of {row['score']:.3f} lies outside of the "
            f"baseline's ({row['grid']}){kept}."
        )
    does = "raising" if row["factor"] >= 1 else "lowering"
    return (
        f"{arm}: its effect on {metric} is that of {does} the baseline's learning rate by a factor "
        f"{row['factor']:.2f} (95 % interval {_interval(row)})."
    )


def _grid(found: Sequence[Curve], metric: str) -> Grid:
    rows = [
        {"at": curve.at, "model": curve.model, "rate": rate, "mean": mean.mean, "half_width": mean.half_width}
        for curve in found
        for rate, own_S in zip(curve.rate_C, curve.score_SC.T, strict=True)
        for mean in [stats.t_interval(own_S)]
    ]
    columns: Columns = {
        "model": "model",
        "at equal": lambda row: UNITS[row["at"]],
        "rate": lambda row: f"{row['rate']:g}",
        metric: lambda row: render.share(row["mean"], row["mean"] - row["half_width"], row["mean"] + row["half_width"]),
    }
    return Grid.of("The grid of the baseline's learning rates", rows, columns, labels=2, is_detail=True)


def _figure(found: Sequence[Curve], rows: Sequence[Row], metric: str) -> Figure:
    """The baseline's curve on each model at the first budget, and each arm at the rate with the same effect."""
    first = [curve for curve in found if curve.at == found[0].at]
    look = base.looks(list(dict.fromkeys(row["arm"] for row in rows)))
    with base.drawing():
        figure, axes = base.canvas(1, len(first), width=base.PAGE, height=2.6, sharey=True)
        for panel, curve in zip(axes, first, strict=True):
            mean = curve.score_SC.mean(0)
            half = [stats.t_interval(own_S).half_width for own_S in curve.score_SC.T]
            panel.errorbar(curve.rate_C, mean, yerr=half, color=base.GREY, marker="o", label="baseline")
            for row in records(pd.DataFrame(rows), model=curve.model, at=curve.at):
                style = look[row["arm"]]
                ends = [row["rate"], row["rate"] * row["factor"]]
                panel.plot(ends, [row["score"]] * 2, color=style.color, linestyle=":", linewidth=1)
                panel.plot(row["rate"], row["score"], color=style.color, marker=style.marker, linestyle="none",
                           label=row["arm"])  # fmt: skip
            panel.set(xscale="log", xlabel="learning rate", title=curve.model)
        axes[0].set_ylabel(metric)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    return figure
