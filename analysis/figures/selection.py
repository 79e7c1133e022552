"""How much of the drop of Fig. 2b is selection, in every regime that was run."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.figures.next_step import NEXT, PROBE, SAME, UNFILTERED
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.statistics import stats

SUITES = ("mastery", "forgetting")
TITLE = "Selection's share of the drop of mastered prompts"
WHAT = "mastered prompts that were rolled again"
PARTS = {"selection": "selection (same policy)", "drift": "change of the policy"}


def build(data: Mapping[str, Runs]) -> Product:
    """One row per run: the drop below 100 % a step later, its two parts, and selection's share of it."""
    frames = [data[suite].findings(PROBE, partial=True) for suite in SUITES]
    rows = pd.concat(frames, ignore_index=True).reindex(columns=["regime", *base.KEYS, "run_id", SAME, NEXT])
    rows = rows[rows["arm"] == UNFILTERED].dropna(subset=[SAME, NEXT]).reset_index(drop=True)
    runs = data[SUITES[0]]
    if rows.empty:
        return base.nothing(TITLE, runs, WHAT, rows)
    rows = rows.assign(drop=1 - rows[NEXT], selection=1 - rows[SAME], drift=rows[SAME] - rows[NEXT])
    rows["selection_share"] = rows["selection"] / rows["drop"].where(rows["drop"] > 0)
    figure = base.panels(rows, _draw)
    notes = [
        f"{UNFILTERED}. Prompts that had all rollouts right are rolled again. Selection: what they miss under the same "
        "policy, because they were picked for their score. Change of the policy: what they miss more a step later.",
        "Bars: mean over seeds, each prompt counted once a step. Share: mean over seeds of each seed's share, with a "
        "95% interval over seeds that stays within 0 and 100 %.",
        *(note for suite in SUITES for note in base.left_out(rows, data[suite].of((UNFILTERED,)), WHAT)),
    ]
    scale = runs.cells[0].spec.scale
    return Product(f"{TITLE} (scale {scale})", _sentence(rows), rows, notes=notes, figure=figure)


def _draw(axes: Axes, here: pd.DataFrame) -> None:
    means = here.groupby("regime", sort=False)[[*PARTS]].mean()
    bottom = np.zeros(len(means))
    for name, look, label in zip(PARTS, (base.GREY, base.UNFILTERED.color), PARTS.values(), strict=True):
        axes.bar(means.index, means[name], bottom=bottom, color=look, label=label, width=0.6)
        bottom += means[name].to_numpy()
    base.points(axes)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("below 100 % a step later (points)")


def _sentence(rows: pd.DataFrame) -> str:
    parts = []
    for (regime, model), here in rows.groupby(["regime", "model"], sort=False):
        share_S = here["selection_share"].dropna().clip(upper=1).to_numpy()
        variance = share_S.var(ddof=1) / share_S.size if share_S.size > 1 else np.nan
        low, high = stats.share_interval(share_S.mean(), variance, share_S.size, share_S.size - 1)
        bounds = "" if np.isnan(low) else f" [{100 * low:.0f}, {100 * high:.0f}]"
        drop = 100 * here["drop"].mean()
        parts.append(f"{100 * share_S.mean():.0f} %{bounds} of {drop:.1f} points in {regime} ({model})")
    return f"Of what mastered prompts seem to lose at a step, selection is {'; '.join(parts)}."


ARTIFACT = Artifact("selection", TITLE, "diagnostic", SUITES, build, "Figure 2b", by_regime=True)
