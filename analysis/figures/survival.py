"""Kaplan-Meier curves of how long a prompt of the panel stays mastered, compared with chance alone."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.statistics import curves, stats
from mcpo_cli.statistics.stats import Floats

SUITE = "table2"
TITLE = "Survival of mastery"
WHAT = "prompts of a panel that were all right before its last roll"
COLUMNS = ("model", "arm", "seeds", "steps", "at_risk", "lost", "survival", "low", "high", "chance")


def build(data: Mapping[str, Runs]) -> Product:
    """One row per model, arm and duration: share of prompts, pooled over seeds, that stay all right for longer."""
    runs = data[SUITE]
    table = runs.findings("transitions", "survival", partial=True)
    table = table.reindex(columns=[*base.KEYS, "run_id", "steps", "at_risk", "lost"])
    chance = runs.findings("transitions", partial=True).reindex(columns=["run_id", "lost_by_chance"])
    every = runs.cells[0].spec.probe.panel_every
    rows = (
        {"model": model, "arm": arm, "seeds": here["run_id"].nunique(), **row}
        for (model, arm), here in table.groupby(["model", "arm"], sort=False)
        for row in _pooled(here, chance.loc[chance["run_id"].isin(here["run_id"]), "lost_by_chance"], every)
    )
    frame = pd.DataFrame(rows, columns=COLUMNS)
    if frame.empty:
        return base.nothing(TITLE, runs, WHAT, frame)
    figure = base.panels(frame, _draw)
    spells = frame[frame["steps"] == 0]
    notes = [
        "Duration: from a prompt's first all-right roll to its first later roll that is not; the end of the run "
        "censors. Prompts of all seeds are pooled. Band: 95 % interval over seeds (Wilson's, with the variance between "
        "seeds and Student's t); a band for independent prompts would be too narrow, as prompts of a seed share its "
        f"updates. Fewer than {stats.LEAST} seeds have none.",
        "Dotted: survival by chance alone, if every roll fails as often as mastered prompts do when they are rolled "
        "again under the same policy; if prompts differ in stability, chance leaves more.",
        "Prompts: " + ", ".join(f"{one.at_risk} of {one.arm} ({one.model})" for one in spells.itertuples()) + ".",
        *base.left_out(table, runs, WHAT),
    ]
    return Product(base.titled(TITLE, runs), _sentence(frame), frame, notes=notes, figure=figure)


def _pooled(table: pd.DataFrame, chance: pd.Series, every: int) -> Iterator[dict[str, Any]]:
    """Kaplan-Meier rows pooled over runs, one per roll of the panel, from 0 steps on.

    chance: per run, the probability that under the same policy the roll after an all-right roll is not all right.
    """
    steps = np.arange(0, table["steps"].max() + 1, every)
    durations, observed = _spells(table)
    pooled_T = _survival(table, steps)
    seed_ST = np.array([_survival(own, steps) for _, own in table.groupby("run_id", sort=False)])
    seeds = len(seed_ST)
    enough = seeds >= stats.LEAST
    for step, share, seed_S in zip(steps, pooled_T, seed_ST.T, strict=True):
        at_risk = int((durations >= step).sum())
        variance = seed_S.var(ddof=1) / seeds if enough and step else np.nan
        low, high = stats.share_interval(share, variance, at_risk, seeds - 1)
        yield {
            "steps": int(step),
            "at_risk": at_risk,
            "lost": int((observed & (durations == step)).sum()),
            "survival": share,
            "low": low,
            "high": high,
            "chance": ((1 - chance) ** (step / every)).mean(),
        }


def _spells(table: pd.DataFrame) -> tuple[Floats, NDArray[np.bool_]]:
    """The durations behind Kaplan-Meier rows, and whether the end of each was observed."""
    # A prompt that is no longer at risk at the next duration was lost at this one or censored.
    gone = table["at_risk"] - table.groupby("run_id")["at_risk"].shift(-1, fill_value=0)
    durations = np.concatenate(
        [np.repeat(table["steps"], table["lost"]), np.repeat(table["steps"], gone - table["lost"])]
    )
    return durations, np.arange(len(durations)) < table["lost"].sum()


def _survival(table: pd.DataFrame, steps: NDArray[np.int64]) -> Floats:
    """The Kaplan-Meier estimate at each of `steps`."""
    curve = curves.survival(*_spells(table))
    shares: Floats = np.append(1.0, curve.share_T)[np.searchsorted(curve.time_T, steps, side="right")]
    return shares


def _draw(axes: Axes, here: pd.DataFrame) -> None:
    for arm, look in base.looks(here["arm"].unique().tolist()).items():
        rows = here[here["arm"] == arm]
        drawn = {"color": look.color, "linestyle": look.linestyle, "marker": look.marker, "markersize": 3}
        axes.step(rows["steps"], rows["survival"], where="post", label=arm, **drawn)
        axes.fill_between(rows["steps"], rows["low"], rows["high"], step="post", color=look.color, alpha=0.13, lw=0)
        axes.step(rows["steps"], rows["chance"], where="post", color=look.color, linestyle=":", linewidth=0.9)
    axes.plot([], [], color=base.GREY, linestyle=":", linewidth=0.9, label="chance alone")
    base.percent(axes)
    base.whole(axes)
    axes.set(xlabel="global steps since the first all-right roll", ylabel="still all right", ylim=(0, 1.02))


def _sentence(frame: pd.DataFrame) -> str:
    parts = []
    for (model, arm), rows in frame.groupby(["model", "arm"], sort=False):
        last = rows.iloc[-1]
        share, low, high, chance = (f"{100 * last[name]:.1f}" for name in ("survival", "low", "high", "chance"))
        bounds = "no interval" if np.isnan(last["low"]) else f"95 % interval {low} to {high}"
        alone = "not measured" if np.isnan(last["chance"]) else f"{chance} %"
        parts.append(
            f"{share} % ({bounds}; by chance alone {alone}) after {last['steps']} global steps under {arm} ({model})"
        )
    return f"Share of the panel's prompts that stay all right after their first all-right roll: {'; '.join(parts)}."


ARTIFACT = Artifact("survival", TITLE, "beyond", (SUITE,), build)
