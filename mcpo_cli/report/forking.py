"""The table and figure of forks of one run, from the rows of the probe `fork`."""

from collections.abc import Mapping
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mcpo_cli.measures.base import Finding
from mcpo_cli.render import markup
from mcpo_cli.render.figures import base
from mcpo_cli.render.markup import Columns, Grid
from mcpo_cli.render.product import Artifact, Product, from_csv

NOTES = (
    "Each row is a fork minus the run that it left, over prompts and held-out problems that both met after the fork.",
    "held out: difference of accuracy of the same problems in the last evaluation, mean over tiers; the 95 % interval "
    "is about other problems, for these two runs: one pair says nothing about other seeds.",
    "training: difference of accuracy of the same prompts over the steps after the fork; changed: the share of these "
    "prompts whose accuracy differs at all.",
    "Both runs draw their rollouts at the same quantiles (common random numbers), so two forks without a change do not "
    "differ.",
)

COLUMNS = ("run_id", "arm", "kind", "step", "compared", "difference", "low", "high", "changed")


def rows(findings: Mapping[str, tuple[str, Finding]]) -> pd.DataFrame:
    """One row per fork, kind (`training`, `held_out`) and step. findings: arm and finding of the probe, by run id.

    Columns: run_id, arm, kind, step, compared (prompts or problems), difference, and low, high or changed.
    """
    differences = [
        {"run_id": run_id, "arm": arm, "kind": kind, "compared": row[size], **row}
        for run_id, (arm, finding) in findings.items()
        for kind, table, size in (("training", "steps", "prompts"), ("held_out", "evaluations", "problems"))
        for row in finding.tables[table]
    ]
    return pd.DataFrame(differences, columns=list(COLUMNS))


def artifact(name: str, parent: str, step: int, path: Path) -> Artifact:
    """The artifact of the forks of run `parent` after `step`, built from the CSV file of their rows."""
    title = f"Forks of {parent} after step {step}"
    return from_csv(name, title, path, lambda data: product(title, data))


def product(title: str, data: pd.DataFrame) -> Product:
    """Table, figure and tidy data of the forks."""
    table = [_row(str(arm), str(run_id), fork) for (arm, run_id), fork in data.groupby(["arm", "run_id"], sort=False)]
    columns: Columns = {
        "arm": "arm",
        "run": "run_id",
        "held out": lambda row: markup.number(row["held_out"], "+.4f"),
        "95 % interval": lambda row: "-" if isnan(row["low"]) else f"[{row['low']:+.4f}, {row['high']:+.4f}]",
        "training": lambda row: markup.number(row["training"], "+.4f"),
        "changed": lambda row: markup.number(row["changed"], ".0%"),
    }
    grid = Grid.of("Forks minus the run that they left", table, columns, labels=2)
    sentence = "No evaluation after the fork has held-out problems of both runs, several of a tier."
    if evaluated := [row for row in table if not isnan(row["held_out"])]:
        largest = max(evaluated, key=lambda row: abs(row["held_out"]))
        sentence = f"The largest difference on held-out problems is {largest['held_out']:+.4f} ({largest['arm']})."
    return Product(title, sentence, data, [grid], list(NOTES), _figure(data))


def _row(arm: str, run_id: str, fork: pd.DataFrame) -> dict[str, Any]:
    """The row of a fork; a number is NaN where both runs have met no prompt, or no problem, after the fork."""
    training, last = fork[fork["kind"] == "training"], fork[fork["kind"] == "held_out"].tail(1)
    held_out, low, high = (float(last[name].mean()) for name in ("difference", "low", "high"))
    difference, changed = (
        float(np.average(training[name], weights=training["compared"])) if len(training) else nan
        for name in ("difference", "changed")
    )
    numbers = {"held_out": held_out, "low": low, "high": high, "training": difference, "changed": changed}
    return {"arm": arm, "run_id": run_id, **numbers}


def _figure(data: pd.DataFrame) -> Figure:
    """Differences along the steps for training prompts, and for held-out problems with their intervals."""
    look = base.looks(list(dict.fromkeys(data["arm"])))
    with base.drawing():
        figure, axes = base.canvas(1, 2, width=base.PAGE, height=2.4, sharex=True)
        for panel, kind in zip(axes, ("training", "held_out"), strict=True):
            panel.axhline(0, color=base.GREY, linewidth=0.5)
            for (arm, _), fork in data[data["kind"] == kind].groupby(["arm", "run_id"], sort=False):
                style = look[str(arm)]
                error = (fork["high"] - fork["low"]).to_numpy() / 2 if kind == "held_out" else None
                panel.errorbar(
                    fork["step"], fork["difference"], yerr=error, color=style.color, marker=style.marker,
                    elinewidth=0.6, label=str(arm),
                )  # fmt: skip
            base.integer_ticks(panel)
            panel.set(xlabel="global step", title=kind.replace("_", "-"))
        axes[0].set_ylabel("fork minus the run\nthat it left")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    return figure
