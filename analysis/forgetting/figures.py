"""What mastered prompts lose per step, and selection's share of the drop of Figure 2b, in every regime that was run."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.figures.base import KEYS
from mcpo_cli.analysis.figures.declare import Content, Quantity, caption, figure, left_out, lines, nothing, per_run
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.render import share as shown_share
from mcpo_cli.statistics import stats

from ..paper.figures.mastery import NEXT, RESAMPLED, SAME, UNFILTERED

WINDOW = 5
"""Global steps that a point of `retention` is the mean of."""


def _draw_retention(axes: Axes, rows: pd.DataFrame) -> None:
    axes.axhline(0, color=base.GREY, linewidth=0.6)
    lines("gap_lag_1", "same \N{MINUS SIGN} next", "window")(axes, rows)


@figure(
    "retention", "Accuracy that mastered prompts lose per step", "forgetting", _draw_retention,
    what="mastered prompts that were resampled", section="diagnostic", by="regime", height=2.1,
)  # fmt: skip
def retention(runs: Runs) -> Content:
    """One row per run and window of steps: the mean gap between the same and the next policy."""
    keys, values = [*KEYS, "regime", "run_id", "window"], ["same_policy", "gap_lag_1"]
    steps = runs.findings("mastery", "steps", partial=True).reindex(columns=[*keys[:-1], "step", *values])
    steps = steps.dropna(subset="gap_lag_1")
    steps["window"] = (steps["step"] - 1) // WINDOW * WINDOW + (WINDOW + 1) // 2
    sentence = caption("Accuracy lost per step", Quantity("", per_run(steps, "gap_lag_1", "regime")))
    note = (
        f"Each point: mean over {WINDOW} global steps, each step counting once, of the accuracy of its mastered "
        "prompts when resampled under the same policy minus that under the next. No arm has the filter."
    )
    return Content(steps.groupby(keys, sort=False)[values].mean().reset_index(), sentence, [note])


SUITES = ("mastery", "forgetting")
SELECTION = "Selection's share of the drop of mastered prompts"
PARTS = {"selection": "selection (same policy)", "drift": "change of the policy"}


def build_selection(data: Mapping[str, Runs]) -> Product:
    """One row per run: the drop below 100 % one step later, its two parts, and selection's share of it."""
    frames = [data[suite].findings("mastery", partial=True) for suite in SUITES]
    rows = pd.concat(frames, ignore_index=True).reindex(columns=["regime", *KEYS, "run_id", SAME, NEXT])
    rows = rows[rows["arm"] == UNFILTERED].dropna(subset=[SAME, NEXT]).reset_index(drop=True)
    if rows.empty:
        return nothing(SELECTION, data[SUITES[0]], RESAMPLED, rows)
    rows = rows.assign(drop=1 - rows[NEXT], selection=1 - rows[SAME], drift=rows[SAME] - rows[NEXT])
    rows["selection_share"] = rows["selection"] / rows["drop"].where(rows["drop"] > 0)
    notes = [
        f"{UNFILTERED}. Mastered prompts are resampled. Selection: what they lack under the same policy, because they "
        "were selected by their score. Change of the policy: what they lack in addition one step later.",
        "Bars: mean over seeds, each prompt counted once per step. Share: mean over seeds of each seed's share, with a "
        "95 % interval over seeds that stays within 0 and 1.",
        *(note for suite in SUITES for note in left_out(rows, data[suite].of((UNFILTERED,)), RESAMPLED)),
    ]
    groups = rows.groupby(["arm", "model", "regime"], sort=False)
    shares = groups["selection_share"].agg(_share).astype("string")
    sentence = caption(
        "Drop of mastered prompts one step later:",
        Quantity("the drop", groups["drop"].mean()),
        Quantity("selection's share", shares),
    )
    title = f"{SELECTION} (scale {data[SUITES[0]].cells[0].spec.scale})"
    return Product(title, sentence, rows, notes=notes, figure=base.panels(rows, _draw_selection))


def _share(values: "pd.Series[float]") -> str:
    """`.820 [.700, .910]`: mean over seeds, with its interval if there are several."""
    share_S = values.dropna().clip(upper=1).to_numpy()
    if not share_S.size:
        return "not measured"
    variance = share_S.var(ddof=1) / share_S.size if share_S.size > 1 else np.nan
    low, high = stats.share_interval(share_S.mean(), variance, share_S.size, share_S.size - 1)
    return shown_share(share_S.mean(), low, high)


def _draw_selection(axes: Axes, here: pd.DataFrame) -> None:
    means = here.groupby("regime", sort=False)[[*PARTS]].mean()
    bottom = np.zeros(len(means))
    for name, color, label in zip(PARTS, (base.GREY, base.UNFILTERED.color), PARTS.values(), strict=True):
        axes.bar(means.index, means[name], bottom=bottom, color=color, label=label, width=0.6)
        bottom += means[name].to_numpy()
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("drop one step later")


ARTIFACTS = (
    retention,
    Artifact("selection", SELECTION, "diagnostic", SUITES, build_selection, "Figure 2b", by_regime=True),
)
