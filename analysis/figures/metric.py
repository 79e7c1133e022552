"""Figures 2a, 5a, 5b, 6 and effective-sample: one metric of the global steps over training, one curve per arm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import PAIR, Runs
from mcpo_cli.analysis.product import Artifact, Product, Section

LATE = 0.75
"""Start of the last quarter of training, by which arms have had time to diverge."""
SAMPLED = "Shares refer to all prompts sampled in a global step, before any filter."


@dataclass(frozen=True)
class Metric:
    """A metric and its names."""

    column: str
    """Column of `Runs.steps()`."""
    short: str
    """Name in the figure's data."""
    what: str
    """Name in a sentence."""
    label: str
    """Label of the y-axis."""
    unit: str = ""
    """Empty for a share, which is shown in percent."""
    digits: int = 2
    """Decimal places of a value with a unit."""

    def words(self, values: pd.Series) -> str:
        """Mean and range of one value per seed."""
        return (
            base.spread(values, f" {self.unit}", digits=self.digits) if self.unit else base.spread(100 * values, " %")
        )


def metric_figure(
    name: str,
    title: str,
    metric: Metric,
    *,
    suite: str = "table1",
    section: Section = "paper",
    published: float | None = None,
    notes: Sequence[str] = (SAMPLED,),
) -> Artifact:
    """The artifact that draws `metric` of the runs of `suite`. published: the paper's approximate value."""

    def build(data: Mapping[str, Runs]) -> Product:
        runs = data[suite]
        columns = [*base.KEYS, "run_id", "step", metric.column]
        frame = runs.steps().reindex(columns=columns).rename(columns={metric.column: metric.short})
        frame = frame.dropna(subset=metric.short).reset_index(drop=True)
        if frame.empty:
            return base.nothing(title, runs, metric.what, frame)
        figure = base.panels(frame, lambda axes, here: _draw(axes, here, metric, published))
        remarks = [base.band_note(frame), *notes, *base.left_out(frame, runs, metric.what)]
        return Product(base.titled(title, runs), _sentence(frame, metric), frame, notes=remarks, figure=figure)

    place = f"Figure {name.removeprefix('fig')}" if section == "paper" else ""
    return Artifact(name, title, section, (suite,), build, place)


def _draw(axes: Axes, frame: pd.DataFrame, metric: Metric, published: float | None) -> None:
    base.curves(axes, frame, metric.short)
    if published is not None:
        base.reference(axes, published, f"paper: about {published:.0%}")
    if not metric.unit:
        base.percent(axes)
    base.whole(axes)
    axes.set(xlabel="global step", ylabel=metric.label)
    # `auto` lets the next panel, which shares this axis, raise the upper limit.
    axes.set_ylim(bottom=0, auto=True)


def _sentence(frame: pd.DataFrame, metric: Metric) -> str:
    """Change from the first step to the mean over the last quarter of training."""
    steps = frame["step"]
    first, late = frame[steps == steps.min()], frame[steps > LATE * steps.max()]
    parts = []
    for model, here in late.groupby("model", sort=False):
        arms = []
        for arm, rows in here.groupby("arm", sort=False):
            start = first.loc[(first["model"] == model) & (first["arm"] == arm), metric.short]
            end = rows.groupby(PAIR)[metric.short].mean()
            arms.append(f"from {metric.words(start)} to {metric.words(end)} under {arm}")
        parts.append(f"{', '.join(arms)} ({model})")
    head = f"From the first global step to the mean over the last quarter of training, {metric.what} goes"
    return f"{head} {'; '.join(parts)}; {base.averaged(frame)}."


MASTERED = Metric("mastery/mastered", "share", "the share of mastered prompts", "mastered prompts")
ALL_WRONG = Metric("mastery/all_wrong", "share", "the share of all-wrong prompts", "all-wrong prompts")
ENTROPY = Metric("train/entropy", "entropy", "the policy's entropy", "entropy (nats per token)", "nats")
ENTROPY_NOTES = (
    "Mean over the tokens of a global step's rollouts. backend=verl counts only the groups that enter the batch, so "
    "that methods with and without a filter are shown on different prompts.",
    "The paper shades an optimal zone without stating its bounds, so it is not drawn.",
)
KISH = Metric(
    "weight/effective_sample", "rollouts", "the effective sample size", "effective rollouts", "rollouts", digits=0
)
KISH_NOTES = (
    "Kish's effective number of rollouts: (sum |A|)^2 / sum A^2 over the advantages A of a global step. Rollouts with "
    "advantage 0 do not count.",
)
RISES_TO: float = base.published("figure2a")["rises_to"]
ARTIFACTS = (
    metric_figure("fig2a", "Mastered prompts under DAPO", MASTERED, suite="mastery", published=RISES_TO),
    metric_figure("fig5a", "Mastered prompts", MASTERED),
    metric_figure("fig5b", "All-wrong prompts", ALL_WRONG),
    metric_figure("fig6", "Policy entropy", ENTROPY, notes=ENTROPY_NOTES),
    metric_figure(
        "effective-sample", "Effective sample size", KISH, suite="table2", section="beyond", notes=KISH_NOTES
    ),
)
