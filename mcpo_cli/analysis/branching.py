"""The table and figure of a branch study, from its rows (`mcpo_cli.probes.branches.rows`).

The unit is the trunk run: what its points measured is averaged first, because points of one run share its history.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mcpo_cli.analysis import words
from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.render import Columns, Grid
from mcpo_cli.statistics import stats
from mcpo_cli.statistics.equal_gain import cost_at_equal_gain
from mcpo_cli.statistics.stats import Effect, Floats

NOTES = (
    "lost: accuracy of the batch's mastered prompts before the step minus after it. Both are taken from rollouts that "
    "did not select the prompts, so selection has no part in it.",
    "gained: accuracy of held-out problems after the step minus before it, mean over tiers, at temperature 1.",
    "Both are estimated from rollouts before and after the step together (multiple importance sampling); those before "
    "the step are the same for all arms.",
    "± is a 95 % t-interval over trunk runs, each the mean of its points; p is the paired t-test, not adjusted.",
    "at equal gain: lost by the arm, minus what a step of another size loses that gains as much (interpolated; "
    "jackknife over trunk runs); - where no step of the curve gains as much.",
)


@dataclass(frozen=True)
class Outcome:
    """Effect of the steps of one arm; one value per trunk run, in the order of the rows."""

    arm: str
    lost_S: Floats
    gained_S: Floats
    drift: float
    """Mean |difference of log p| per token of mastered prompts' responses, nats."""


def artifact(name: str, title: str, curve: Sequence[str], rows: Path) -> Artifact:
    """The artifact of a study, built from the CSV file of its rows."""

    def build(_: object) -> Product:
        return product(title, curve, pd.read_csv(rows, keep_default_na=False, na_values=["nan"]))

    return Artifact(name, title, "diagnostic", (), build, source=rows)


def outcomes(rows: pd.DataFrame) -> list[Outcome]:
    """The outcome of each arm, in the order of the rows; NaN for a trunk run without mastered or held-out prompts."""
    found = []
    runs = rows["run_id"].unique()
    for arm, own in rows.groupby("arm", sort=False):
        mastered, held_out = (own[own["cohort"] == cohort] for cohort in ("mastered", "held_out"))
        lost = (-mastered["change"] * mastered["prompts"]).groupby(mastered["run_id"]).sum()
        lost /= mastered.groupby("run_id")["prompts"].sum()
        gained = held_out.groupby("run_id")["change"].mean()
        drift = float(np.average(mastered["drift"], weights=mastered["prompts"])) if len(mastered) else np.nan
        lost_S, gained_S = (series.reindex(runs).to_numpy(dtype=np.float64) for series in (lost, gained))
        found.append(Outcome(str(arm), lost_S, gained_S, drift))
    return found


def selection(rows: pd.DataFrame, arm: str) -> Effect | None:
    """The share of the raw drop that selection explains, over trunk runs.

    The raw drop is what a figure like the paper's Fig. 2b shows: mastered prompts were correct in all rollouts of the
    batch, and are correct in fewer when sampled after the step. Selection is the part that also appears before it.
    None if no run has mastered prompts, or fewer drop than not.
    """
    own = rows[(rows["arm"] == arm) & (rows["cohort"] == "mastered")]
    sums = own.assign(right=own["before"] * own["prompts"], moved=own["change"] * own["prompts"])
    sums = sums.groupby("run_id", sort=False)[["right", "moved", "prompts"]].sum()
    selected = 1 - sums["right"] / sums["prompts"]
    drop = selected - sums["moved"] / sums["prompts"]
    if not len(sums) or (drop <= 0).any():
        return None
    return stats.paired_t((selected / drop).to_numpy())


def product(title: str, curve: Sequence[str], rows: pd.DataFrame) -> Product:
    """The study's table, figure and tidy data: one row per arm."""
    found = outcomes(rows)
    first = found[0]
    data = pd.DataFrame([_numbers(one, first, curve, found) for one in found])
    columns: Columns = {
        "arm": "arm",
        "lost": _shown("lost"),
        "gained": _shown("gained"),
        f"lost minus {first.arm}": _shown("against_first"),
        "p": lambda row: words.p_value(row["against_first_p"]),
        "lost at equal gain": _shown("equal"),
        "p (equal gain)": lambda row: words.p_value(row["equal_p"]),
        "drift": lambda row: f"{row['drift']:.4f}",
    }
    grid = Grid.of("One global step of each arm", data.to_dict("records"), columns, labels=1)
    points = rows[["run_id", "step"]].drop_duplicates()
    sizes = f"{len(points)} branch points of {rows['run_id'].nunique()} trunk runs"
    share = selection(rows, first.arm)
    notes = [*NOTES, f"{sizes}; {_mastered(rows)}.", *_resampled(rows)]
    return Product(f"{title} ({sizes})", _sentence(first, share), data, [grid], notes, _figure(data, curve))


def _numbers(one: Outcome, first: Outcome, curve: Sequence[str], found: Sequence[Outcome]) -> dict[str, object]:
    against = None if one is first else _paired(one.lost_S - first.lost_S)
    steps = [other for other in found if other.arm in curve]
    equal = None
    if steps and one.arm not in curve and len(one.lost_S) > 1:
        in_order = sorted(steps, key=lambda other: curve.index(other.arm))
        gain_SC, cost_SC = (np.stack(part, 1) for part in zip(*((o.gained_S, o.lost_S) for o in in_order), strict=True))
        kept = ~np.isnan(np.column_stack([one.gained_S, one.lost_S, gain_SC, cost_SC])).any(1)
        if kept.sum() > 1:
            equal = cost_at_equal_gain(one.gained_S[kept], one.lost_S[kept], gain_SC[kept], cost_SC[kept])
    row: dict[str, object] = {"arm": one.arm}
    effects = {"lost": _paired(one.lost_S), "gained": _paired(one.gained_S), "against_first": against, "equal": equal}
    for name, effect in effects.items():
        numbers = [np.nan] * 3 + [0] if effect is None else [effect.mean, effect.half_width, effect.p, effect.n]
        row |= dict(zip((name, f"{name}_half_width", f"{name}_p", f"{name}_runs"), numbers, strict=True))
    return row | {"drift": one.drift}


def _paired(value_S: Floats) -> Effect | None:
    known = value_S[~np.isnan(value_S)]
    return stats.paired_t(known) if len(known) else None


def _shown(name: str) -> Callable[[Mapping[str, Any]], str]:
    """The text of an effect of a row; `-` where it is not known."""
    return lambda row: "-" if math.isnan(row[name]) else _change(row[name], row[f"{name}_half_width"])


def _change(mean: float, half_width: float) -> str:
    """A step changes accuracy by less than a run does: one digit more than tables of runs have."""
    return words.change(mean, half_width, 4)


def _mastered(rows: pd.DataFrame) -> str:
    own = rows[(rows["arm"] == rows["arm"].iloc[0]) & (rows["cohort"] == "mastered")]
    batches = rows[["run_id", "step", "batch"]].drop_duplicates()["batch"].sum()
    return f"{own['prompts'].sum() / batches:.0%} of their prompts were mastered ({own['prompts'].sum()} of {batches})"


def _resampled(rows: pd.DataFrame) -> list[str]:
    """How far the estimates are from the accuracy of new rollouts, where the study sampled any."""
    known = rows.dropna(subset=["resampled"])
    if known.empty:
        return []
    bias = np.average(known["before"] + known["change"] - known["resampled"], weights=known["prompts"])
    return [f"Check by other rollouts after the step: the estimate minus their accuracy is {bias:+.4f} on average."]


def _sentence(first: Outcome, share: Effect | None) -> str:
    lost, gained = _paired(first.lost_S), _paired(first.gained_S)
    parts = ["No prompt was mastered"]
    if lost:
        change = _change(lost.mean, lost.half_width)
        parts = [f"A global step of {first.arm} takes {change} of accuracy from mastered prompts"]
    if gained:
        parts.append(f"gives {_change(gained.mean, gained.half_width)} to held-out problems")
    if share:
        parts.append(f"selection explains {share.mean:.0%} of the raw drop of mastered prompts")
    return "; ".join(parts) + "."


def _figure(data: pd.DataFrame, curve: Sequence[str]) -> Figure:
    """Gains and losses of each arm, and the curve of the step size."""
    with base.drawing():
        figure, (axes,) = base.canvas(width=base.PAGE, height=2.8)
        _draw(axes, data, curve)
        figure.legend(loc="outside right center")
    return figure


def _draw(axes: Axes, data: pd.DataFrame, curve: Sequence[str]) -> None:
    line = data.set_index("arm").reindex([arm for arm in curve if arm in set(data["arm"])])
    x, y = ([0.0, *line[name]] for name in ("gained", "lost"))
    axes.plot(x, y, color=base.GREY, linewidth=1, label="step size alone", zorder=1)
    axes.axhline(0, color=base.GREY, linewidth=0.5)
    look = base.looks(list(data["arm"]))
    for _, row in data.iterrows():
        style = look[row["arm"]]
        axes.errorbar(
            row["gained"], row["lost"], yerr=row["lost_half_width"], xerr=row["gained_half_width"],
            color=style.color, marker=style.marker, linestyle="none", elinewidth=0.6, label=row["arm"],
        )  # fmt: skip
    axes.set(xlabel="gained by held-out problems", ylabel="lost by mastered prompts")
