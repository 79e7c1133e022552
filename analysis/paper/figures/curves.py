"""Figures of curves: over training, over the mini-batches of a step, and over samples."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.compare import equal_cost
from mcpo_cli.compare.equal_cost import AXES, UNITS
from mcpo_cli.measures.frames import Runs
from mcpo_cli.measures.mastery import HARD
from mcpo_cli.render.figures import base
from mcpo_cli.render.figures.base import KEYS
from mcpo_cli.render.product import Artifact
from mcpo_cli.statistics import stats

from .. import published
from ..sections import BEYOND, PAPER, place
from .declare import FigureContent, Quantity, caption, figure, lines, per_run

LATE = 0.75
"""Start of the last quarter of training, by which arms have had time to diverge."""


def _metric(
    name: str,
    title: str,
    column: str,
    what: str,
    label: str,
    *,
    suite: str = "table1",
    section: str = PAPER,
    short: str = "share",
    unit: str = "",
    digits: int = 3,
    paper: float | None = None,
    notes: Sequence[str] = ("Shares refer to all prompts sampled in a global step, before any filter.",),
) -> Artifact:
    """A metric of the global steps over training.

    Args:
        column, short: its column in `Runs.steps()` and in the figure's data.
        what, label: its name in the caption and on the y-axis.
        paper: the paper's approximate value.
    """
    curve = lines(short, label, points=False, zero=True)

    def draw(axes: Axes, rows: pd.DataFrame) -> None:
        curve(axes, rows)
        if paper is not None:
            base.reference(axes, paper, f"paper: about {paper:g}")

    @figure(name, title, suite, draw, what=what, section=section, place=place(name))
    def artifact(runs: Runs) -> FigureContent:
        rows = runs.steps().reindex(columns=[*KEYS, "run_id", "step", column]).rename(columns={column: short})
        rows = rows.dropna(subset=short).reset_index(drop=True)
        step = rows["step"]
        ends = {"at the first step": step == step.min(), "in the last quarter of training": step > LATE * step.max()}
        means = [Quantity(end, per_run(rows[at], short), unit, digits) for end, at in ends.items()]
        return FigureContent(rows, caption(what.removeprefix("the ").capitalize(), *means), notes)

    return artifact


def _draw_learning(axes: Axes, rows: pd.DataFrame) -> None:
    lines("value", "held-out pass@1 (share)", "x", UNITS[rows["at"].iloc[0]])(axes, rows)


@figure(
    "learning-curves", "Learning curves", "table2", _draw_learning,
    what="evaluations", section=BEYOND, by="panel", sharey=False,
)  # fmt: skip
def learning_curves(runs: Runs) -> FigureContent:
    """One row per run, tier and evaluation: the mean pass@1 of its problems, and the rollouts sampled by then."""
    sizes = runs.eval(step="all").groupby(["run_id", "tier", "step"], as_index=False).agg(problems=("n", "size"))
    scores = runs.scores().merge(sizes, on=["run_id", "tier", "step"])
    rows = scores.rename(columns={"pass@1": "pass_at_1", AXES["rollouts"]: "rollouts"})
    rows = rows[[*KEYS, "run_id", "tier", "step", "rollouts", "pass_at_1", "problems"]]
    blocks = [scores.rename(columns={"step": "x", "pass@1": "value"}).assign(at="steps", measured=True)]
    if not rows["rollouts"].isna().any():
        tiers = scores.groupby("tier", sort=False)
        blocks += [equal_cost.curves("rollouts", part, "pass@1").assign(tier=tier) for tier, part in tiers]
    points = pd.concat([block[[*KEYS, "tier", "at", "x", "value", "measured"]] for block in blocks], ignore_index=True)
    ends = (0, rows["step"].max())
    means = [Quantity(f"at step {step}", per_run(rows[rows["step"] == step], "pass_at_1")) for step in ends]
    note = (
        "All arms of a seed start from its base policy (step 0). Curves by rollouts end where the first run ends; they "
        "have markers where all runs of the arm were evaluated, and are interpolated elsewhere."
    )
    panels = points.assign(panel=points["tier"] + ", by " + points["at"])
    return FigureContent(rows, caption("Held-out pass@1, mean over tiers,", *means), [note], panels)


SCORES: dict[str, Callable[..., Any]] = {"pass_at_k": stats.pass_at_k, "best_at_k": stats.best_at_k}


@figure(
    "pass-at-k", "pass@k after training", "table2", lines("pass_at_k", "held-out pass@k (share)", "k", "k (samples)"),
    what="a graded sample of every held-out problem", section=BEYOND, by="tier", sharey=False,
)  # fmt: skip
def pass_at_k(runs: Runs) -> FigureContent:
    """One row per run, tier and k: means over problems of pass@k (unbiased) and best@k (which the paper reports)."""
    problems, keys = runs.eval(), [*KEYS, "run_id", "tier", "k"]
    last, most = int(problems["n"].min()), int(problems["n"].max())
    blocks = [pd.DataFrame(columns=[*keys, *SCORES])] if last == 0 else []
    for k in range(1, last + 1):
        scores = {name: score(problems["n"], problems["c"], k) for name, score in SCORES.items()}
        blocks.append(problems.assign(k=k, **scores).groupby(keys, sort=False, as_index=False)[[*SCORES]].mean())
    rows = pd.concat(blocks, ignore_index=True)
    means = [Quantity(f"at k = {k}", per_run(rows[rows["k"] == k], "pass_at_k")) for k in dict.fromkeys((1, last))]
    unbiased, best = (rows.loc[rows["k"] == last, name].mean() for name in SCORES)
    notes = [
        "pass@k: probability that k new samples include a correct one, estimated without bias from "
        f"{most} samples per problem.",
        "best@k, which the paper calls pass@k, draws with replacement and is therefore lower: at k = "
        f"{last} it is {best:.3f}, and pass@k is {unbiased:.3f}, mean over all runs and tiers.",
    ]
    if last < most:
        notes.append(f"k ends at {last} because some problems have only {last} graded samples.")
    return FigureContent(rows, caption("Held-out pass@k after training, mean over tiers,", *means), notes)


GROUPS = {"hard": f"at most {HARD:.0%} at the first roll", "all_wrong": "never right at the first roll"}
"""Column of the probe's table -> label."""


@figure(
    "hard-prompts", "Learning of hard prompts", "table2", lines("accuracy", "rollout accuracy (share)", zero=True),
    what="samples of a panel with a hard prompt", section=BEYOND, by="group",
)  # fmt: skip
def hard_prompts(runs: Runs) -> FigureContent:
    """One row per run, group of the panel's prompts and sampling of the panel: their mean accuracy."""
    keys = [*KEYS, "run_id", "step"]
    learned = runs.findings("transitions", "learning", partial=True).reindex(columns=[*keys, *GROUPS])
    rows = learned.rename(columns=GROUPS).melt(keys, var_name="group", value_name="accuracy")
    values = runs.findings("transitions", partial=True).reindex(columns=[*KEYS, "hard_prompts", "hard_gain"])
    values = values.dropna(subset="hard_prompts").set_index(KEYS)
    sentence = caption(
        f"Prompts with at most {HARD:.0%} at the first sampling:",
        Quantity("their gain from the second sampling to the last", values["hard_gain"]),
        Quantity("their number", values["hard_prompts"], "", 0),
    )
    note = (
        f"Prompts of the panel, resampled every {runs.planned[0].spec.probe.panel_every} global steps. The first "
        "sampling selected them, so its accuracy is biased low: progress shows from the second sampling on."
    )
    return FigureContent(rows.dropna(subset="accuracy").reset_index(drop=True), sentence, [note])


SHARE_OF = {"prompts_felt": "prompts", "tokens_active": "tokens"}
"""Column of the probe's table (and metric of the steps, after `hinge/`) -> what it is a share of."""
MOST = 16
"""Most points of a curve over global steps: single steps vary so much that the bands would hide the curves."""


def _block(rows: pd.DataFrame) -> int:
    """The number of places that a point is the mean of."""
    return math.ceil(float(rows["place"].max()) / MOST)


def _draw_hinge(axes: Axes, rows: pd.DataFrame) -> None:
    size = _block(rows)
    middle = (rows["place"] - 1) // size * size + (size + 1) / 2
    points = rows.assign(place=middle).groupby([*KEYS, "place"], sort=False)["share"].mean().reset_index()
    lines("share", "outside the budget (share)", "place", rows["over"].iloc[0], zero=True)(axes, points)


@figure(
    "hinge", "Activity of the hinge", "table2", _draw_hinge,
    what="activity of a hinge", section=BEYOND, by="panel", sharey=False,
)  # fmt: skip
def hinge(runs: Runs) -> FigureContent:
    """One row per run, quantity and place: share of mastered prompts, or of their tokens, outside the drift budget.

    A place is a global step, or a mini-batch within a global step (mean over the steps).
    """
    steps = runs.steps().rename(columns={f"hinge/{name}": name for name in SHARE_OF} | {"step": "place"})
    mini_batches = runs.findings("hinge", "mini_batches", partial=True).rename(columns={"mini_batch": "place"})
    blocks, keys = [], [*KEYS, "run_id", "place"]
    for table, over, span in ((steps, "global step", "in training"), (mini_batches, "mini-batch", "in a step")):
        shares = table.reindex(columns=[*keys, *SHARE_OF]).rename(columns=SHARE_OF)
        block = shares.melt(keys, var_name="quantity", value_name="share").dropna(subset="share")
        blocks.append(block.assign(over=over, panel=block["quantity"] + f" {span}"))
    rows = pd.concat(blocks, ignore_index=True)
    names = ["prompts_felt", "switched_on", "switched_off", "variance_policy", "variance_added"]
    values = runs.findings("hinge", partial=True).reindex(columns=[*KEYS, *names]).set_index(KEYS)
    sentence = caption(
        "Activity of the hinge over mini-batches: share of mastered prompts",
        Quantity("outside the drift budget", values["prompts_felt"]),
        Quantity("pairs of consecutive mini-batches of which the second alone is active", values["switched_on"]),
        Quantity("of which the first alone is", values["switched_off"]),
        Quantity("variance added to the loss", values["variance_added"] / values["variance_policy"]),
    )
    notes = [
        "Prompts: share of mastered prompts with a token outside the drift budget. Tokens: share of mastered prompts' "
        "tokens outside it. A prompt counts once per global step, under the weights before its gradient step.",
    ]
    steps, first = rows[rows["over"] == "global step"], rows[(rows["over"] == "mini-batch") & (rows["place"] == 1)]
    if len(steps) and _block(steps) > 1:
        notes.append(f"Over global steps, each point is the mean of {_block(steps)} steps.")
    if len(first) and not first["share"].any():
        notes.append("The hinge is inactive in the first mini-batch of a step: the policy still equals its anchor.")
    return FigureContent(rows, sentence, notes)


RISES_TO: float = published.figure("figure2a")["rises_to"]
MASTERED = "mastery/mastered", "the share of mastered prompts", "mastered prompts (share)"
ARTIFACTS = (
    _metric("fig2a", "Mastered prompts under DAPO", *MASTERED, suite="mastery", paper=RISES_TO),
    _metric("fig5a", "Mastered prompts", *MASTERED),
    _metric(
        "fig5b", "All-wrong prompts", "mastery/all_wrong", "the share of all-wrong prompts",
        "all-wrong prompts (share)",
    ),
    _metric(
        "fig6", "Policy entropy", "train/entropy", "the policy's entropy", "entropy (nats per token)",
        short="entropy", unit=" nats", digits=2,
        notes=(
            "Mean over the tokens of a global step's rollouts. backend=verl counts only the groups that enter the "
            "batch, so methods with and without a filter are shown on different prompts.",
            "The paper shades an optimal zone without stating its bounds, so it is not drawn.",
        ),
    ),
    _metric(
        "effective-sample", "Effective sample size", "weight/effective_sample", "the effective sample size",
        "effective rollouts", suite="table2", section=BEYOND, short="rollouts", unit=" rollouts", digits=0,
        notes=(
            "Kish's effective number of rollouts: (sum |A|)^2 / sum A^2 over the advantages A of a global step. "
            "Rollouts with advantage 0 do not count.",
        ),
    ),
    learning_curves, pass_at_k, hard_prompts, hinge,
)  # fmt: skip
