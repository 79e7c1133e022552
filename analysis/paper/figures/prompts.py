"""Figures of single prompts: survival, transitions and trajectories of the panel, difficulty of held-out problems."""

from collections.abc import Iterator, Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from numpy.typing import NDArray

from mcpo_cli.measures.base import CLASSES
from mcpo_cli.measures.frames import PAIR, Runs
from mcpo_cli.render.figures import base
from mcpo_cli.render.figures.base import KEYS
from mcpo_cli.render.markup import share as shown_share
from mcpo_cli.render.product import Artifact, Product
from mcpo_cli.statistics import curves, stats
from mcpo_cli.statistics.stats import Floats

from ..sections import BEYOND
from .declare import FigureContent, Quantity, caption, figure, left_out, nothing, per_run, titled

SPELLS = "prompts of a panel that were mastered before its last sampling"
COLORS = "cividis"


def pooled_survival(table: pd.DataFrame, chance: "pd.Series[float]", lag: int) -> Iterator[dict[str, Any]]:
    """Kaplan-Meier rows pooled over runs, one per sampling of the panel, from 0 steps on.

    chance: per run, the probability that under the same policy a mastered prompt is not mastered when resampled.
    """
    steps = np.arange(0, table["steps"].max() + 1, lag)
    durations, observed = spells(table)
    pooled_T = _survival(table, steps)
    seed_ST = np.array([_survival(part, steps) for _, part in table.groupby("run_id", sort=False)])
    seeds = len(seed_ST)
    for step, share, seed_S in zip(steps, pooled_T, seed_ST.T, strict=True):
        at_risk = int((durations >= step).sum())
        variance = seed_S.var(ddof=1) / seeds if seeds >= stats.LEAST and step else np.nan
        low, high = stats.share_interval(share, variance, at_risk, seeds - 1)
        yield {
            "steps": int(step),
            "at_risk": at_risk,
            "lost": int((observed & (durations == step)).sum()),
            "survival": share,
            "low": low,
            "high": high,
            "chance": ((1 - chance) ** (step / lag)).mean(),
        }


def spells(table: pd.DataFrame) -> tuple[Floats, NDArray[np.bool_]]:
    """The durations behind Kaplan-Meier rows, and for each whether its end was observed."""
    # A prompt that is no longer at risk at the next duration was lost at this one or censored.
    exits = table["at_risk"] - table.groupby("run_id")["at_risk"].shift(-1, fill_value=0)
    durations = np.concatenate(
        [np.repeat(table["steps"], table["lost"]), np.repeat(table["steps"], exits - table["lost"])]
    )
    return durations, np.arange(len(durations)) < table["lost"].sum()


def _survival(table: pd.DataFrame, steps: NDArray[np.int64]) -> Floats:
    """The Kaplan-Meier estimate at each of `steps`."""
    curve = curves.survival(*spells(table))
    shares: Floats = np.append(1.0, curve.share_T)[np.searchsorted(curve.time_T, steps, side="right")]
    return shares


def _draw_survival(axes: Axes, data: pd.DataFrame) -> None:
    for arm, look in base.looks(data["arm"].unique().tolist()).items():
        rows = data[data["arm"] == arm]
        style = {"color": look.color, "linestyle": look.linestyle, "marker": look.marker, "markersize": 3}
        axes.step(rows["steps"], rows["survival"], where="post", label=arm, **style)
        axes.fill_between(rows["steps"], rows["low"], rows["high"], step="post", color=look.color, alpha=0.13, lw=0)
        axes.step(rows["steps"], rows["chance"], where="post", color=look.color, linestyle=":", linewidth=0.9)
    axes.plot([], [], color=base.GREY, linestyle=":", linewidth=0.9, label="chance alone")
    if data["low"].notna().any():
        base.named(axes, "95% interval")
    base.integer_ticks(axes)
    axes.set(xlabel="global steps since first mastered", ylabel="still mastered (share)", ylim=(0, 1.02))


@figure("survival", "Survival of mastery", "table2", _draw_survival, what=SPELLS, section=BEYOND, band=False)
def survival(runs: Runs) -> FigureContent:
    """One row per model, arm and duration: share of prompts, pooled over seeds, that stay mastered for longer."""
    table = runs.findings("transitions", "survival", partial=True)
    table = table.reindex(columns=[*KEYS, "run_id", "steps", "at_risk", "lost"])
    chance = runs.findings("transitions", partial=True).reindex(columns=["run_id", "lost_by_chance"])
    lag = runs.planned[0].spec.probe.panel_every
    survivals = (
        {"model": model, "arm": arm, "seeds": of_arm["run_id"].nunique(), **row}
        for (model, arm), of_arm in table.groupby(["model", "arm"], sort=False)
        for row in pooled_survival(of_arm, chance.loc[chance["run_id"].isin(of_arm["run_id"]), "lost_by_chance"], lag)
    )
    columns = ["model", "arm", "seeds", "steps", "at_risk", "lost", "survival", "low", "high", "chance"]
    rows = pd.DataFrame(survivals, columns=columns)
    last = rows.drop_duplicates(["model", "arm"], keep="last").set_index(["model", "arm"])
    sentence = caption(
        "Prompts of the panel that are still mastered",
        Quantity("at the end", last.apply(_at_the_end, axis=1).astype("string")),
        Quantity("by chance alone", last["chance"]),
    )
    prompts = ", ".join(f"{row.at_risk} of {row.arm} ({row.model})" for row in rows[rows["steps"] == 0].itertuples())
    notes = [
        "Duration: from the first sampling at which all rollouts of a prompt are correct to the next at which they are "
        "not; the end of the run censors. Prompts of all seeds are pooled. Band: 95 % interval over seeds (Wilson's, "
        "with the variance between seeds and Student's t); a band for independent prompts would be too narrow, as "
        f"prompts of one seed share its updates. Fewer than {stats.LEAST} seeds have no band.",
        "Dotted: survival by chance alone, if every sampling fails as often as mastered prompts do when resampled "
        "under the same policy. If prompts differ in stability, more of them survive by chance.",
        f"Prompts: {prompts}.",
        *left_out(table, runs, SPELLS),
    ]
    return FigureContent(rows, sentence, notes)


def _at_the_end(row: "pd.Series[Any]") -> str:
    return f"{shown_share(row['survival'], row['low'], row['high'])} after {row['steps']:.0f} steps"


NAMES = [name.removesuffix("_correct").replace("_", " ") for name in CLASSES]


def _draw_transitions(axes: Axes, data: pd.DataFrame) -> None:
    counts = data.assign(count=data["share"] * data["pairs"]).pivot_table(
        index="before", columns="after", values="count", aggfunc="sum"
    )
    counts_BA = counts.reindex(index=CLASSES, columns=CLASSES).to_numpy()
    pairs_B = counts_BA.sum(axis=1)
    share_BA = counts_BA / pairs_B[:, None]
    axes.imshow(share_BA, cmap=COLORS, vmin=0, vmax=1)
    for (before, after), share in np.ndenumerate(share_BA):
        if not np.isnan(share):
            color = "white" if share < 0.5 else "black"
            axes.text(after, before, f"{share:.2f}", ha="center", va="center", fontsize=6.5, color=color)
    for before, pairs in enumerate(np.nan_to_num(pairs_B)):
        axes.text(len(CLASSES) - 0.4, before, f"{pairs:.0f}", va="center", fontsize=5.5, color=base.GREY)
    axes.text(len(CLASSES) - 0.4, -0.75, "pairs", va="center", fontsize=5.5, color=base.GREY)
    axes.set_xticks(range(len(CLASSES)), NAMES, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(CLASSES)), NAMES)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set(xlabel="next sampling", ylabel="sampling")


@figure(
    "transitions", "Transitions between the classes of prompts", "table2", _draw_transitions,
    what="two samplings of a panel", section=BEYOND, by="arm", band=False, height=2.1, widest=1.9,
)  # fmt: skip
def transitions(runs: Runs) -> FigureContent:
    """One row per run and pair of classes: `share` of the `pairs` of samplings that begin in class `before`."""
    keys = [*KEYS, "run_id", "before", "pairs"]
    wide = runs.findings("transitions", "transitions", partial=True).reindex(columns=[*keys, *CLASSES])
    rows = wide.melt(keys, var_name="after", value_name="share").dropna(subset="share").reset_index(drop=True)
    stays = rows[rows["before"] == rows["after"]]
    mastered, wrong = (per_run(stays[stays["before"] == name], "share") for name in ("mastered", "all_wrong"))
    values = runs.findings("transitions", partial=True).reindex(columns=[*KEYS, "lost_by_chance"]).set_index(KEYS)
    sentence = caption(
        "Prompts that keep their class until the next sampling:",
        Quantity("of the mastered ones", mastered),
        Quantity("of the mastered ones under the same policy", 1 - values["lost_by_chance"]),
        Quantity("of the all-wrong ones", wrong),
    )
    lag = runs.planned[0].spec.probe.panel_every
    notes = [
        f"A pair is a sampling of the panel and the next one, {lag} global steps later, over all of training.",
        "Shares are pooled over the pairs of all seeds; numbers on the right count the pairs that begin in the class. "
        "All wrong: p = 0; minority: 0 < p <= 0.5; majority: 0.5 < p < 1; mastered: p = 1.",
    ]
    return FigureContent(rows, sentence, notes)


def build_trajectories(data: Mapping[str, Runs]) -> Product:
    """One row per sampling of a prompt of the panel, first pair of seeds only; `row` is its place under all arms."""
    title, what, (runs,) = "Trajectories of prompts", "samples of a panel", data.values()
    rows = runs.findings("transitions", "trajectories", partial=True)
    rows = rows.reindex(columns=[*KEYS, "run_id", "prompt", "step", "p"])
    frame = next((part for _, part in rows.groupby(PAIR)), rows)
    if frame.empty:
        return nothing(title, runs, what, frame)
    frame = _sorted(frame.assign(copy=frame.groupby(["run_id", "prompt", "step"]).cumcount()))
    picture = base.grid(frame, "arm", _draw_trajectories, height=2.4)
    with base.drawing():
        scale = ScalarMappable(Normalize(0, 1), COLORS)
        picture.colorbar(scale, ax=picture.axes, label="rollout accuracy (share)", shrink=0.8)
    seeds = ", ".join(f"{name.replace('_', ' ')} {frame[name].iloc[0]}" for name in PAIR)
    notes = [
        "The panel consists of the first prompts of the training stream, resampled every "
        f"{runs.planned[0].spec.probe.panel_every} global steps.",
        f"Only {seeds} is shown. Each line is a prompt, in the same place under every arm of a model; lines are sorted "
        "by accuracy at the first sampling, then by mean accuracy over all samplings and arms.",
        "By chance alone a prompt with a true accuracy slightly below 1 fails at some samplings: see survival.",
        *left_out(rows, runs, what),
    ]
    return Product(titled(title, runs), _trajectory_words(frame, seeds), frame, notes=notes, figure=picture)


def _sorted(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the column `row`, which numbers the prompts of a model from the hardest at the first sampling."""
    # The panel may hold a prompt twice.
    prompt = ["prompt", "copy"]
    first = frame[frame["step"] == frame.groupby("run_id")["step"].transform("min")]
    keys = ["model", *prompt]
    order = pd.DataFrame({"first": first.groupby(keys)["p"].mean(), "mean": frame.groupby(keys)["p"].mean()})
    order = order.reset_index().sort_values(["model", "first", "mean", *prompt], kind="stable")
    order["row"] = order.groupby("model").cumcount()
    return frame.merge(order[[*keys, "row"]], on=keys)


def _draw_trajectories(axes: Axes, data: pd.DataFrame) -> None:
    table = data.pivot(index="row", columns="step", values="p")
    axes.imshow(table, aspect="auto", cmap=COLORS, vmin=0, vmax=1, interpolation="nearest")
    ticks = range(0, table.shape[1], -(-table.shape[1] // 4))
    axes.set_xticks(ticks, [str(table.columns[column]) for column in ticks])
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.set(xlabel="global step", ylabel="prompt of the panel")


def _trajectory_words(frame: pd.DataFrame, seeds: str) -> str:
    """Mastered prompts at the first and the last sampling."""
    p = frame.pivot(index=["model", "arm", "row"], columns="step", values="p")
    ends = p[sorted({frame["step"].min(), frame["step"].max()})] == 1
    counts = ends.assign(both=ends.all(axis=1)).groupby(["model", "arm"]).sum()
    counts = counts.reindex(pd.MultiIndex.from_frame(frame[["model", "arm"]].drop_duplicates()))
    labels = [*(f"at step {step}" for step in ends.columns), "at both" if len(ends.columns) > 1 else "at all"]
    return caption(
        f"Of the {frame['row'].max() + 1} prompts of the panel ({seeds}), the number of mastered ones",
        *(Quantity(name, counts[at], "", 0) for at, name in zip(counts, labels, strict=True)),
    )


BINS = ("never", "up to 25%", "up to 50%", "up to 75%", "below 100%", "always")
"""Bins of the share c/n of samples that solve a problem: 0, (0, .25], (.25, .5], (.5, .75], (.75, 1), 1."""
BASE = "base policy"


def _draw_difficulty(axes: Axes, data: pd.DataFrame) -> None:
    trained = data[data["policy"] != BASE]
    bars = {BASE: data[data["policy"] == BASE]}
    bars |= {str(arm): rows for arm, rows in trained.groupby("arm", sort=False)}
    colors = mpl.colormaps[COLORS](np.linspace(0, 1, len(BINS)))
    left = np.zeros(len(bars))
    for solved, color in zip(BINS, colors, strict=True):
        width = np.array([rows.loc[rows["solved"] == solved, "share"].mean() for rows in bars.values()])
        axes.barh(range(len(bars)), width, left=left, color=color, label=f"{solved} right", height=0.75)
        left += width
    axes.set_yticks(range(len(bars)), list(bars))
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set(xlim=(0, 1), xticks=(0, 0.5, 1), xlabel="share of problems")
    axes.grid(visible=False)


@figure(
    "difficulty", "Difficulty of the held-out problems", "table2", _draw_difficulty,
    what="evaluations", section=BEYOND, by="tier", band=False, height=1.9, sharex=True, together=True,
)  # fmt: skip
def difficulty(runs: Runs) -> FigureContent:
    """One row per run, policy (base or trained), tier and bin: the share of the tier's `problems` in that bin."""
    table = runs.eval(step="all")
    last = table.groupby("run_id")["step"].transform("max")
    table = table[((table["step"] == 0) | (table["step"] == last)) & (table["n"] > 0)]
    bin_N = np.where(table["c"] == table["n"], len(BINS) - 1, -(-4 * table["c"] // table["n"]))
    table = table.assign(policy=np.where(table["step"] == 0, BASE, "trained"))
    groups = table.assign(**{name: bin_N == index for index, name in enumerate(BINS)}).groupby(
        [*KEYS, "run_id", "policy", "tier"], sort=False
    )
    wide = groups[[*BINS]].mean().assign(problems=groups.size()).set_index("problems", append=True)
    rows = wide.melt(var_name="solved", value_name="share", ignore_index=False).reset_index()
    ends = [(time, policy, name) for time, policy in (("before", BASE), ("after", "trained")) for name in BINS[::5]]
    shares = {
        f"{name} solved {time} training": rows[(rows["solved"] == name) & (rows["policy"] == policy)]
        for time, policy, name in ends
    }
    sizes, problems = table.groupby("tier", sort=False)["problem"].nunique(), set(table["problem"])
    trained = {row["prompt"] for run in runs.planned for row in runs.journal(run).rows("groups")}
    notes = [
        "Bars: mean over seeds. Colour: the share of a problem's samples that solved it.",
        "Problems: " + ", ".join(f"{count} of {tier}" for tier, count in sizes.items()) + ".",
        f"{len(problems & trained)} of {len(problems)} held-out problems were among the training prompts.",
    ]
    if rule := runs.planned[0].spec.task.held_out_rule:
        notes.append(f"No overlap is possible: {rule}.")
    quantities = [Quantity(name, per_run(part, "share")) for name, part in shares.items()]
    return FigureContent(rows, caption("Held-out problems, mean over tiers,", *quantities), notes)


ARTIFACTS = (
    survival, transitions, difficulty,
    Artifact("trajectories", "Trajectories of prompts", BEYOND, ("table2",), build_trajectories),
)  # fmt: skip
