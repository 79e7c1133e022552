"""Figures 3b and 4: weight of a prompt in the update by its accuracy, in theory and measured from its gradient."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import PAIR, Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.config.plan import Cell
from mcpo_cli.methods import Method, query_weight
from mcpo_cli.statistics import clusters

SUITE, PROBE = "table2", "weights"
THEORY, MEASURED = "theory", "gradients"
GRID = np.sin(np.linspace(0, np.pi / 2, 201)) ** 2
"""Accuracies from 0 to 1, dense where sqrt(p(1 - p)) is steep."""
PLAIN = query_weight("grpo", GRID)
COLUMNS = [*base.KEYS, "run_id", "source", "p", "weight", "weight_low", "weight_high", "prompts"]
GRADIENTS = "gradients of single prompts"
WHOLE = dict.fromkeys((*PAIR, "prompts"), "Int64")
"""Columns of whole numbers, which rows of the theory lack."""
NOTES = (
    "Line: W(p) of the method (Eq. 6, Eq. 14), 0 at p = 0 and p = 1. Points: v . u / |u|^2, where v is the descent "
    "direction of the prompt's loss and u the gradient of s+ - s- (Eq. 5), mean over prompts of equal accuracy.",
    "Points: means over all prompts of all seeds. Bars: 95 % intervals that allow for the dependence of prompts of one "
    "seed (with one seed, of prompts of one step). Points without a bar: prompts of fewer than three seeds (steps).",
)


def weight_figure(name: str, title: str, *, reweighted: bool) -> Artifact:
    """The artifact for the arms whose weights differ from GRPO's (`reweighted`), or for those with GRPO's weights."""

    def build(data: Mapping[str, Runs]) -> Product:
        runs = data[SUITE]
        with_curve = [cell for cell in runs.cells if np.isfinite(cell.spec.method.query_weight(GRID)).all()]
        cells = [cell for cell in with_curve if _reweights(cell.spec.method) == reweighted]
        kind = "a method with weights of its own" if reweighted else "a method with GRPO's weights"
        if not cells:
            return base.nothing(title, runs, kind, pd.DataFrame(columns=COLUMNS))
        arms = list(dict.fromkeys(cell.arm for cell in cells))
        theory, measured = _theory(cells), _measured(runs, arms)
        frame = pd.concat([theory, measured]) if len(measured) else theory
        figure = base.panels(frame, lambda axes, here: _draw(axes, here, reweighted), height=2.3)
        here = [cell for cell in runs.cells if cell.arm in arms]
        lost = len(here) - measured["run_id"].nunique()
        notes = [*NOTES, *([f"{lost} of {len(here)} runs have no {GRADIENTS}."] if lost else [])]
        return Product(base.titled(title, runs), _sentence(cells, measured), frame, notes=notes, figure=figure)

    return Artifact(name, title, "paper", (SUITE,), build, f"Figure {name.removeprefix('fig')}")


def _reweights(method: Method) -> bool:
    return not np.allclose(method.query_weight(GRID), PLAIN)


def _theory(cells: list[Cell]) -> pd.DataFrame:
    """The theoretical curve of each arm and model."""
    methods = {(cell.spec.model.name, cell.arm): cell.spec.method for cell in cells}
    blocks = [
        pd.DataFrame({"model": model, "arm": arm, "source": THEORY, "p": GRID, "weight": query_weight(method, GRID)})
        for (model, arm), method in methods.items()
    ]
    return pd.concat(blocks, ignore_index=True).reindex(columns=COLUMNS).astype(WHOLE)


def _measured(runs: Runs, arms: list[str]) -> pd.DataFrame:
    """One row per run and accuracy with measured gradients."""
    names = {"measured": "weight", "measured_low": "weight_low", "measured_high": "weight_high"}
    rows = runs.findings(PROBE, "curve", partial=True).rename(columns=names).assign(source=MEASURED)
    rows = rows.reindex(columns=COLUMNS).astype(WHOLE)
    return rows[rows["arm"].isin(arms)].dropna(subset="weight")


def _pooled(rows: pd.DataFrame) -> pd.Series:
    """Mean weight and its interval over the prompts of all runs, for one arm and accuracy."""
    if len(rows) == 1:
        return rows.iloc[0][["weight", "weight_low", "weight_high"]].astype(float)
    mean = clusters.mean(rows["weight"], rows["prompts"].astype(float), rows["run_id"]).interval()
    return pd.Series({"weight": mean.mean, "weight_low": mean.low, "weight_high": mean.high})


def _points(measured: pd.DataFrame) -> pd.DataFrame:
    """The points of one arm, indexed by p."""
    return pd.DataFrame({p: _pooled(rows) for p, rows in measured.groupby("p")}).T


def _draw(axes: Axes, here: pd.DataFrame, reweighted: bool) -> None:
    if reweighted:
        axes.plot(GRID, PLAIN, color=base.GREY, linewidth=0.9, linestyle=":", label="GRPO, DAPO: theory")
    looks = base.looks(here["arm"].unique().tolist())
    _draw_theory(axes, here[here["source"] == THEORY], looks)
    for place, (arm, rows) in enumerate(here[here["source"] == MEASURED].groupby("arm", sort=False)):
        points, look = _points(rows), looks[str(arm)]
        reach = [points["weight"] - points["weight_low"], points["weight_high"] - points["weight"]]
        # Points of several arms overlap: the first arm's markers are large and open, the others' fit inside.
        marks: dict[str, Any] = {"color": look.color, "markersize": 6.5 / (1 + place)}
        marks["markerfacecolor"] = look.color if place else "none"
        axes.errorbar(points.index, points["weight"], reach, fmt=look.marker, label=f"{arm}: gradients", **marks)
    axes.margins(y=0.1)
    axes.set(xlabel="rollout accuracy p", ylabel="query weight W(p)")
    axes.set_ylim(bottom=0, auto=True)


def _draw_theory(axes: Axes, theory: pd.DataFrame, looks: Mapping[str, base.Look]) -> None:
    """Draw the theory, equal curves once; curves end before p = 1, where the weight jumps to 0."""
    curves = theory[theory["p"] < 1].pivot(index="p", columns="arm", values="weight").round(9).T.drop_duplicates().T
    for arm, curve in curves.items():
        color, line = ("black", "-") if curves.shape[1] == 1 else (looks[str(arm)].color, looks[str(arm)].linestyle)
        label = "theory" if curves.shape[1] == 1 else f"{arm}: theory"
        axes.plot(curve.index, curve, color=color, linestyle=line, linewidth=1, label=label)


def _sentence(cells: list[Cell], measured: pd.DataFrame) -> str:
    parts = []
    for (model, arm), spec in {(cell.spec.model.name, cell.arm): cell.spec for cell in cells}.items():
        G = spec.train.rollouts
        top, half = (query_weight(spec.method, p) for p in (1 - 1 / G, 0.5))
        weights = f"{top:.3f} with {G - 1} of {G} rollouts right and {half:.3f} with half of them"
        here = measured[(measured["model"] == model) & (measured["arm"] == arm)]
        seen = f"no run recorded {GRADIENTS}"
        if len(here):
            points = _points(here)["weight"]
            off = float(np.abs(points - query_weight(spec.method, points.index.to_numpy())).max())
            differ = "less than 0.0001" if off < 1e-4 else f"up to {off:.4f}"
            seen = f"the gradients of {here['prompts'].sum()} prompts differ from theory by {differ} at any p"
        parts.append(f"{weights} under {arm} ({model}; {seen})")
    return f"In theory a prompt has the weight {', '.join(parts)}."


ARTIFACTS = (
    weight_figure("fig3b", "Query weight without reweighting", reweighted=False),
    weight_figure("fig4", "Query weight with reweighting", reweighted=True),
)
