"""The tables and the figure of a branch study, from its rows (`mcpo_cli.scheduling.branches.rows`).

The unit is the trunk run: measurements are first averaged over its points, because these share its history.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mcpo_cli.config.branching import Study
from mcpo_cli.config.claims import Claim
from mcpo_cli.render import markup
from mcpo_cli.render.figures import base
from mcpo_cli.render.markup import Columns, Grid
from mcpo_cli.render.product import Artifact, Product, from_csv
from mcpo_cli.report import claim_tests, claims_table
from mcpo_cli.report.claim_tests import ClaimTest
from mcpo_cli.statistics import stats
from mcpo_cli.statistics.stats import Effect, Floats

NOTES = (
    "lost: accuracy of the batch's mastered prompts before the step minus after it. Both are taken from rollouts that "
    "did not select the prompts, so selection has no part in it.",
    "gained: accuracy of held-out problems after the step minus before it, mean over tiers, at temperature 1.",
    "Both are estimated from rollouts before and after the step together (multiple importance sampling); those before "
    "the step are the same for all arms.",
    "± is a 95 % t-interval over trunk runs, each the mean of its states (lost: weighted by "
    "their mastered prompts); p is the paired t-test, not adjusted.",
    "lost at equal gain: lost by the arm, minus what a step of another size loses that gains as much; gained at equal "
    "loss: likewise, the other way round (interpolated; jackknife over trunk runs). - where no step of the curve "
    "gains, or loses, as much, or a larger step does not gain, or lose, more.",
)
ROW = 0.19
"""Height of an arm's row, in inches."""
LABELS = {"lost": "lost by mastered prompts", "gained": "gained by held-out problems"}
"""The axis of each effect."""


@dataclass(frozen=True)
class BranchResult:
    """Effect of the steps of one arm; one value per trunk run, in the order of the rows."""

    arm: str
    lost_S: Floats
    gained_S: Floats
    drift: float
    """Mean |difference of log p| per token of mastered prompts' responses, nats."""


def artifact(name: str, study: Study, rows: Path) -> Artifact:
    """The tables of a study with their figure, built from the CSV file of its rows."""
    return from_csv(name, study.title or name, rows, lambda data: product(study, data))


def outcomes(rows: pd.DataFrame) -> list[BranchResult]:
    """The outcome of each arm, in the order of the rows; NaN for a trunk run without mastered or held-out prompts."""
    results = []
    runs = rows["run_id"].unique()
    for arm, arm_rows in rows.groupby("arm", sort=False):
        mastered, held_out = (arm_rows[arm_rows["cohort"] == cohort] for cohort in ("mastered", "held_out"))
        lost = (-mastered["change"] * mastered["prompts"]).groupby(mastered["run_id"]).sum()
        lost /= mastered.groupby("run_id")["prompts"].sum()
        gained = held_out.groupby("run_id")["change"].mean()
        drift = float(np.average(mastered["drift"], weights=mastered["prompts"])) if len(mastered) else np.nan
        lost_S, gained_S = (series.reindex(runs).to_numpy(dtype=np.float64) for series in (lost, gained))
        results.append(BranchResult(str(arm), lost_S, gained_S, drift))
    return results


def selection(rows: pd.DataFrame, arm: str) -> tuple[Floats, Floats]:
    """Accuracy that selection and the arm's step take from the batch's mastered prompts, one value each per trunk run.

    Their sum is the raw drop that a figure like the paper's Fig. 2b shows: mastered prompts were correct in all
    rollouts of the batch, and are correct in fewer when sampled after the step. Selection is the part that also appears
    before the step.
    """
    mastered = rows[(rows["arm"] == arm) & (rows["cohort"] == "mastered")]
    prompts = mastered["prompts"]
    sums = mastered.assign(right=mastered["before"] * prompts, moved=mastered["change"] * prompts)
    sums = sums.groupby("run_id", sort=False)[["right", "moved", "prompts"]].sum()
    selection_drop = 1 - sums["right"] / sums["prompts"]
    return selection_drop.to_numpy(), (-sums["moved"] / sums["prompts"]).to_numpy()


def product(study: Study, rows: pd.DataFrame) -> Product:
    """The study's tables, figure and tidy data: one row per arm, and one verdict per hypothesis."""
    data, results = numbers(study.curve, rows), outcomes(rows)
    first = results[0]
    columns: Columns = {
        "arm": "arm",
        "lost": _shown("lost"),
        "gained": _shown("gained"),
        f"lost minus {first.arm}": _shown("against_first"),
        "p": lambda row: markup.p_value(row["against_first_p"]),
        "lost at equal gain": _shown("equal_gain"),
        "gained at equal loss": _shown("equal_loss"),
        "drift": lambda row: f"{row['drift']:.4f}",
    }
    grids = [Grid.of("One global step of each arm", data.to_dict("records"), columns, labels=1)]
    if study.hypotheses:
        grids.append(claims_table.verdict_grid(tested(study.hypotheses, rows, study.curve)))
        hypotheses = [vars(hypothesis) for hypothesis in study.hypotheses]
        grids.append(Grid.of("What is tested", hypotheses, {"id": "id", "claim": "claim"}, labels=2))
    points = rows[["run_id", "step"]].drop_duplicates()
    sizes = f"{len(points)} branch points of {rows['run_id'].nunique()} trunk runs"
    notes = [*NOTES, f"{sizes}; {_mastered(rows)}."]
    sentence = _sentence(first, *selection(rows, first.arm))
    runs = {name: {result.arm: getattr(result, f"{name}_S") for result in results} for name in LABELS}
    return Product(f"{study.title} ({sizes})", sentence, data, grids, notes, _forest(data, runs))


def numbers(curve: Sequence[str], rows: pd.DataFrame) -> pd.DataFrame:
    """The table's numbers: one row per arm, with mean, half-width of the 95 % interval, p and number of trunk runs."""
    results = outcomes(rows)
    steps = _curve(curve, results)
    return pd.DataFrame([_numbers(result, results[0], steps) for result in results])


def tested(hypotheses: Sequence[Claim], rows: pd.DataFrame, curve: Sequence[str]) -> list[ClaimTest]:
    """The hypotheses' tests as one family; the unit is the trunk run."""
    by_arm = {result.arm: result for result in outcomes(rows)}
    steps = _curve(curve, list(by_arm.values()))
    model = str(rows["model"].iloc[0])

    def number(statistic: str, arm: str) -> Floats:
        if statistic == "selection minus step":
            selected_S, step_S = selection(rows, arm)
            return selected_S - step_S
        result = by_arm[arm]
        values = {
            "lost": result.lost_S,
            "gained": result.gained_S,
            "lost at equal gain": _from_curve(result, steps, "gained_S", "lost_S"),
            "gained at equal loss": _from_curve(result, steps, "lost_S", "gained_S"),
        }[statistic]
        return np.full(1, np.nan) if values is None else values

    def test(claim: Claim) -> ClaimTest:
        value_S = number(claim.statistic, claim.arm)
        value_S = value_S - number(claim.statistic, claim.baseline) if claim.baseline else value_S
        return claim_tests.of_values(claim, model, "-", {"": value_S.tolist()})

    return claim_tests.as_family([test(hypothesis) for hypothesis in hypotheses])


def _curve(names: Sequence[str], results: Sequence[BranchResult]) -> list[BranchResult]:
    """The arms of the curve that were measured, from the smallest step."""
    return [result for name in names for result in results if result.arm == name]


def _numbers(result: BranchResult, first: BranchResult, steps: Sequence[BranchResult]) -> dict[str, object]:
    row: dict[str, object] = {"arm": result.arm}
    effects = {
        "lost": _paired(result.lost_S),
        "gained": _paired(result.gained_S),
        "against_first": None if result is first else _paired(result.lost_S - first.lost_S),
        "equal_gain": _paired(_from_curve(result, steps, "gained_S", "lost_S")),
        "equal_loss": _paired(_from_curve(result, steps, "lost_S", "gained_S")),
    }
    for name, effect in effects.items():
        numbers = [np.nan] * 3 + [0] if effect is None else [effect.mean, effect.half_width, effect.p, effect.n]
        row |= dict(zip((name, f"{name}_half_width", f"{name}_p", f"{name}_runs"), numbers, strict=True))
    return row | {"drift": result.drift}


def _from_curve(result: BranchResult, steps: Sequence[BranchResult], equal: str, other: str) -> Floats | None:
    """The arm's difference from the curve in `other`, where it equals the curve in `equal`; None if undefined."""
    if not steps or any(result is step for step in steps):
        return None
    x_SC, y_SC = (np.stack([getattr(step, name) for step in steps], 1) for name in (equal, other))
    x_S, y_S = getattr(result, equal), getattr(result, other)
    mask_S = ~np.isnan(np.column_stack([x_S, y_S, x_SC, y_SC])).any(1)
    return difference_from_curve(x_S[mask_S], y_S[mask_S], x_SC[mask_S], y_SC[mask_S]) if mask_S.sum() > 1 else None


def difference_from_curve(x_S: Floats, y_S: Floats, x_SC: Floats, y_SC: Floats) -> Floats | None:
    """The arm's mean y minus the curve's y at the arm's mean x, as one pseudo-value per run.

    If x is what an arm gains and y what it loses, this is the loss at equal gain; the other way round, it is the gain
    at equal loss. The curve joins the origin (no step, no change) and the means of arms that differ in the step size
    alone, by straight lines. Its points and the arm's place on it have a joint uncertainty, so the values are
    pseudo-values of a jackknife over runs (Efron and Tibshirani 1993, chapter 11): their mean estimates the difference,
    and a t-test of them tests the difference.

    Args:
        x_S, y_S: means of the arm, per run.
        x_SC, y_SC: means of the C arms of the curve, in the order of their step sizes.

    Returns:
        The values. None if the arm's mean x is outside the curve or the curve's x do not increase, for all runs or for
        all runs but one: nothing is extrapolated.

    Raises:
        ValueError: there are fewer than two runs.
    """
    S = len(x_S)
    if S < 2:
        raise ValueError("the jackknife needs at least two runs")
    all_runs = np.arange(S)
    values = [
        _difference(x_S[subset].mean(), y_S[subset].mean(), x_SC[subset].mean(0), y_SC[subset].mean(0))
        for subset in (all_runs, *(np.delete(all_runs, run) for run in range(S)))
    ]
    if np.isnan(values).any():
        return None
    full_value, without_S = values[0], np.array(values[1:])
    return S * full_value - (S - 1) * without_S


def _difference(x: float, y: float, x_C: Floats, y_C: Floats) -> float:
    curve_x, curve_y = np.concatenate([[0.0], x_C]), np.concatenate([[0.0], y_C])
    if (np.diff(curve_x) <= 0).any() or not curve_x[0] <= x <= curve_x[-1]:
        return float("nan")
    return float(y - np.interp(x, curve_x, curve_y))


def _paired(value_S: Floats | None) -> Effect | None:
    if value_S is None:
        return None
    values = value_S[~np.isnan(value_S)]
    return stats.paired_t(values) if len(values) else None


def _shown(name: str) -> Callable[[Mapping[str, Any]], str]:
    """The text of an effect of a row; `-` where it is not known."""
    return lambda row: "-" if math.isnan(row[name]) else _change(row[name], row[f"{name}_half_width"])


def _change(mean: float, half_width: float) -> str:
    """A change as text, with one digit more than in tables of runs: a step changes accuracy less than a run does."""
    return markup.change(mean, half_width, 4)


def _mastered(rows: pd.DataFrame) -> str:
    mastered = rows[(rows["arm"] == rows["arm"].iloc[0]) & (rows["cohort"] == "mastered")]["prompts"].sum()
    batches = rows[["run_id", "step", "batch"]].drop_duplicates()["batch"].sum()
    return f"{mastered / batches:.0%} of their prompts were mastered ({mastered} of {batches})"


def _sentence(first: BranchResult, selected_S: Floats, step_S: Floats) -> str:
    lost, gained = _paired(first.lost_S), _paired(first.gained_S)
    parts = ["No prompt was mastered"]
    if lost:
        change = _change(lost.mean, lost.half_width)
        parts = [f"A global step of {first.arm} takes {change} of accuracy from mastered prompts"]
    if gained:
        parts.append(f"gives {_change(gained.mean, gained.half_width)} to held-out problems")
    if len(selected_S):
        selection_drop, raw_drop = selected_S.mean(), (selected_S + step_S).mean()
        parts.append(f"of a raw drop of mastered prompts of {raw_drop:.3f}, selection explains {selection_drop:.3f}")
    return "; ".join(parts) + "."


def _forest(data: pd.DataFrame, runs: Mapping[str, Mapping[str, Floats]]) -> Figure:
    """One row per arm: a point for each trunk run, and their mean with its 95 % interval.

    Args:
        data: one row per arm with `lost`, `gained` and their `_half_width`.
        runs: by effect and arm, one value per trunk run.
    """
    arms = data["arm"].tolist()
    with base.drawing():
        figure, axes = base.canvas(1, 2, width=base.PAGE, height=0.8 + ROW * len(arms), sharey=True)
        for panel, (effect, values) in zip(axes, runs.items(), strict=True):
            for row, arm in enumerate(arms):
                value_S = values[arm]
                panel.plot(value_S, np.full(len(value_S), row), ".", color=base.DAPO.color, alpha=0.45, markersize=4)
            panel.errorbar(
                data[effect], range(len(arms)), xerr=data[f"{effect}_half_width"],
                color="black", marker="D", markersize=3, linestyle="none", elinewidth=0.9,
            )  # fmt: skip
            panel.axvline(0, color=base.GREY, linewidth=0.8)
            panel.set_xlabel(LABELS[effect])
        axes[0].set_yticks(range(len(arms)), arms)
        axes[0].invert_yaxis()
        axes[0].plot([], [], ".", color=base.DAPO.color, alpha=0.45, label="one trunk run")
        axes[0].plot([], [], "D-", color="black", markersize=3, linewidth=0.9, label="mean with 95 % interval")
        base.legend(figure)
    return figure
