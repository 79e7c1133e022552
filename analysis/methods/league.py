"""The league of methods: every suite `methods-*` in one table, against the suite's first arm, with its controls."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis import render
from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import PAIR, Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.render import Columns, Grid
from mcpo_cli.compare.comparison import Comparison, Question, records
from mcpo_cli.compare.runs import of_runs
from mcpo_cli.statistics import stats

SUITES = tuple(
    f"methods-{name}"
    for name in ("weights", "baselines", "zero-variance", "mastered", "ratio", "small-groups", "diversity")
)
QUESTION = Question(metrics=("pass@1",), at=("rollouts", "steps"))
TWINS = {"methods-weights": ("RLOO", "Dr. GRPO")}
"""Arms whose advantages differ only by a constant factor: a difference between them is noise, or step size."""
NOTES = (
    "Arms are in the order of IQM, the mean of the middle half of the pass@1 of all tiers and seeds (Agarwal et al. "
    "2021). P(better): probability that a run of the arm beats a run of the suite's first arm. Both at equal rollouts, "
    "the most that all runs of the suite reach. difference: pass@1, mean over the tiers, minus the first arm's, paired "
    "by seed. Intervals are 95% over seeds, not adjusted for their number: one in twenty leaves out 0 by chance.",
    "gradient norm: before it is cut, median over the first fifth of the gradient steps, as a multiple of the first "
    "arm's. cut: share of the gradient steps whose norm is above train.grad_clip. AdamW divides the scale of a loss "
    "out, and the cut does not. So arms of less than half or more than twice the norm have their train.grad_clip "
    "multiplied by it, which is the same as to divide their loss by it and to cut as the first arm does.",
    "before training: mean pass@1 of the base policies. since then: the arm's pass@1 at equal rollouts minus theirs, "
    "paired by base policy and seed. <: the arm ends below its base policies; <<: so does the whole interval. Where "
    "both do, a higher pass@1 than the first arm's means that less was lost, not that more was learned.",
    "Negative controls: an arm that is rewarded by coins must gain nothing over the base policy, and arms that differ "
    "by a constant factor of the advantage must not differ.",
)


def build(data: Mapping[str, Runs]) -> Product:
    """One row per suite and arm."""
    compared = {suite: of_runs(data[suite], QUESTION) for suite in SUITES}
    rows = [row for suite in SUITES for row in _rows(suite, data[suite], compared[suite])]
    warnings = {suite: [*_coins(suite, data[suite]), *_twins(suite, compared[suite])] for suite in SUITES}
    said = [text for texts in warnings.values() for text in texts]
    curves = pd.concat([one.trained.curves.assign(suite=suite) for suite, one in compared.items()], ignore_index=True)
    figure = base.grid(curves[curves["at"] == "rollouts"], "suite", _draw, height=2.0, sharey=False, sharex=False)
    title = f"League of methods (scale {compared[SUITES[0]].trained.spec.scale}, {len(SUITES)} suites)"
    grids = [_glance(rows, compared, warnings), *(_grid(suite, compared[suite], rows) for suite in SUITES)]
    return Product(title, _sentence(rows, said), pd.DataFrame(rows), grids, [*said, *NOTES], figure)


def _rows(suite: str, runs: Runs, compared: Comparison) -> list[dict[str, Any]]:
    """The rows of a suite's arms, highest IQM first."""
    norms, found = _norms(runs), []
    for one in records(compared.aggregates, at="rollouts", metric=compared.metric):
        (norm, cut), gain = norms[one["arm"]], compared.trained.gain("rollouts", compared.models[0], one["arm"])
        row = {"suite": suite, "arm": one["arm"], **render.columns("iqm", one["iqm"], one["iqm_low"], one["iqm_high"])}
        if one["arm"] != compared.baseline:
            row |= {key: one[key] for key in ("better", "better_low", "better_high")}
        row |= {"before": gain["before"], **render.columns("since", gain["mean"], gain["low"], gain["high"])}
        row |= {"mark": gain["mark"], "norm": norm / norms[compared.baseline][0], "cut": cut}
        found.append(row)
    for one in records(compared.aggregates, metric=compared.metric):
        if one["arm"] != compared.baseline:
            (row,) = (row for row in found if row["arm"] == one["arm"])
            row |= render.columns(one["at"], *(one[f"difference_{bound}"] for bound in ("mean", "low", "high")))
    return sorted(found, key=lambda row: -row["iqm"])


def _norms(runs: Runs) -> dict[str, tuple[float, float]]:
    """By arm: median gradient norm over the first fifth of the gradient steps, and the share of all that are cut."""
    early: dict[str, list[float]] = {}
    cut: dict[str, list[float]] = {}
    for cell in runs.cells:
        values = runs.finding("methods", cell).values
        early.setdefault(cell.arm, []).append(values["early_norm"])
        cut.setdefault(cell.arm, []).append(values["cut"])
    return {arm: (float(np.mean(early[arm])), float(np.mean(cut[arm]))) for arm in early}


def _coins(suite: str, runs: Runs) -> Iterator[str]:
    """A warning for each arm that gains although its rewards are random."""
    gained: dict[str, list[float]] = {}
    for cell in runs.cells:
        if cell.spec.train.reward == "random":
            gained.setdefault(cell.arm, []).append(runs.finding("scores", cell).values["gained"])
    for arm, values in gained.items():
        interval = stats.t_interval(values)
        if interval.low > 0:
            yield (
                f"WARNING: {arm} gains {interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}] in pass@1 "
                f"({suite}), though coins reward it: gains of this size do not come from rewards alone"
            )


def _twins(suite: str, compared: Comparison) -> Iterator[str]:
    """A warning if two arms that must not differ do."""
    if suite in TWINS:
        final = compared.trained.final.groupby(["arm", "model", *PAIR])["value"].mean()
        diff = stats.t_interval((final[TWINS[suite][0]] - final[TWINS[suite][1]]).to_numpy())
        if diff.low > 0 or diff.high < 0:
            yield (
                f"WARNING: {' and '.join(TWINS[suite])} differ by {diff.mean:+.3f} [{diff.low:.3f}, {diff.high:.3f}] "
                f"in pass@1 ({suite}), though their advantages differ by a constant factor alone"
            )


def _draw(axes: Axes, here: pd.DataFrame) -> None:
    looks = base.looks(here["arm"].unique().tolist())
    for arm, runs in here.groupby("arm", sort=False):
        # Runs with refills differ in rollouts: their evaluations are averaged in order.
        mean = runs.assign(evaluation=runs.groupby(PAIR).cumcount()).groupby("evaluation")[["x", "value"]].mean()
        look = looks[str(arm)]
        axes.plot(mean["x"], mean["value"], color=look.color, linestyle=look.linestyle, label=arm, linewidth=0.9)
    axes.set(xlabel="rollouts", ylabel="pass@1")


def _glance(
    rows: Sequence[Mapping[str, Any]], compared: Mapping[str, Comparison], warnings: Mapping[str, Sequence[str]]
) -> Grid:
    """One row per suite: the leading arm, and the arms above and below the first arm at equal rollouts."""
    of_suite = {suite: [row for row in rows if row["suite"] == suite] for suite in SUITES}
    columns: Columns = {
        "suite": str,
        "leads": lambda suite: of_suite[suite][0]["arm"],
        "first arm": lambda suite: compared[suite].baseline,
        "above it": lambda suite: ", ".join(row["arm"] for row in of_suite[suite] if _above(row)) or "-",
        "below it": lambda suite: ", ".join(row["arm"] for row in of_suite[suite] if _below(row)) or "-",
        "below their base policies": lambda suite: f"{sum(map(_loses, of_suite[suite]))} of {len(of_suite[suite])}",
        "controls": lambda suite: "WARNING" if warnings[suite] else "quiet",
    }
    return Grid.of("At a glance, at equal rollouts", SUITES, columns, labels=len(columns))


def _grid(suite: str, compared: Comparison, rows: Sequence[Mapping[str, Any]]) -> Grid:
    before = compared.trained.gain("rollouts", compared.models[0], compared.baseline)["before"]
    title = f"{suite}, against {compared.baseline}; before training {before:.3f}"
    return Grid.of(title, [row for row in rows if row["suite"] == suite], COLUMNS, labels=1)


def _sentence(rows: Sequence[Mapping[str, Any]], warnings: Sequence[str]) -> str:
    tested = [row for row in rows if "rollouts" in row]
    above, below = (sum(map(test, tested)) for test in (_above, _below))
    controls = f"{len(warnings)} negative controls warn" if warnings else "no negative control warns"
    return (
        f"Of {len(tested)} arms, {above} have a higher pass@1 than their suite's first arm at equal rollouts and "
        f"{below} a lower one (95% intervals over seeds, not adjusted for their number); "
        f"{sum(map(_loses, rows))} of all {len(rows)} arms end below their base policies; {controls}."
    )


def _above(row: Mapping[str, Any]) -> bool:
    return bool(row.get("rollouts_low", 0) > 0)


def _loses(row: Mapping[str, Any]) -> bool:
    return bool(row["mark"])


def _below(row: Mapping[str, Any]) -> bool:
    return bool(row.get("rollouts_high", 0) < 0)


COLUMNS: Columns = {
    "arm": lambda row: f"{row['arm']} {row['mark']}".rstrip(),
    "IQM": render.bounded("iqm"),
    "P(better)": render.bounded("better"),
    "at equal rollouts": render.bounded("rollouts", "+.3f"),
    "at equal steps": render.bounded("steps", "+.3f"),
    "since then": render.bounded("since", "+.3f"),
    "gradient norm": lambda row: f"{row['norm']:.2f}",
    "cut": lambda row: f"{row['cut']:.0%}",
}
ARTIFACT = Artifact("methods", "League of methods", "diagnostic", SUITES, build)
