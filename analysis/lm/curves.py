"""A pretrained language model before and after training: held-out pass@1, composition of prompts, and curves."""

import math
from collections.abc import Iterator, Mapping

import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.measures.frames import Runs
from mcpo_cli.render.figures import base
from mcpo_cli.render.markup import Grid
from mcpo_cli.render.product import DIAGNOSTICS, Artifact, Product

from ..paper.figures.declare import averaged, band_note, titled

SUITE = "lm"
TITLE = "A pretrained language model under DAPO and MCPO"
BEFORE = "before training"
LATE = 0.75
"""Start of the last quarter of training."""
COMPOSITION = {
    "train/accuracy": "correct rollouts",
    "mastery/mastered": "mastered prompts",
    "mastery/all_wrong": "all-wrong prompts",
}
CURVES = ("held-out pass@1", *COMPOSITION.values())
PANEL = 2.05
"""Width of a panel in inches: two side by side are legible on a phone."""
NOTES = (
    "pass@1: mean over the held-out problems of a tier. ± is a 95 % interval over problems and samples of one run; it "
    "says nothing about other seeds.",
    "Training: means over the first and over the last quarter of the global steps, of all prompts sampled, before "
    "DAPO's filter. A prompt is mastered if all its rollouts are correct.",
    "Arms have as many global steps, not as many rollouts: DAPO samples more to fill its batches.",
)


def build(data: Mapping[str, Runs]) -> Product:
    """One row per arm, quantity and global step."""
    runs = data[SUITE]
    points = _points(runs)
    grids = [
        Grid("Held-out pass@1 (%)", ("model", "arm", "step", *_tiers(runs), "mean"), list(_held_out(runs)), labels=3),
        Grid(
            "Training: first to last quarter",
            ("model", "arm", *COMPOSITION.values(), "rollouts", "minutes"),
            list(_training(runs)),
            labels=2,
        ),
    ]
    figure = base.grid(points, "quantity", _draw, sharey=False, widest=PANEL)
    notes = [*NOTES, band_note(points)]
    return Product(titled(TITLE, runs), _sentence(points), points, grids, notes, figure)


def _tiers(runs: Runs) -> list[str]:
    return list(runs.eval()["tier"].unique())


def _points(runs: Runs) -> pd.DataFrame:
    """One row for every quantity and every global step at which it was measured."""
    scores = runs.scores().rename(columns={"pass@1": "value"})
    means = scores.groupby([*base.KEYS, "step"], sort=False)["value"].mean().reset_index()
    blocks = [means.assign(quantity=CURVES[0])]
    steps = runs.steps()
    for column, name in COMPOSITION.items():
        part = steps[[*base.KEYS, "step", column]].rename(columns={column: "value"})
        blocks.append(part.assign(quantity=name))
    columns = [*base.KEYS, "quantity", "step", "value"]
    return pd.concat(blocks, ignore_index=True).reindex(columns=columns)


def _held_out(runs: Runs) -> Iterator[list[str]]:
    """Rows of the first grid: each model before training, which its arms share, and each arm after it."""
    rows = runs.eval(step="all")
    rows = rows.assign(share=rows["c"] / rows["n"])
    for model, of_model in rows.groupby("model", sort=False):
        for arm, of_arm in of_model.groupby("arm", sort=False):
            last = int(of_arm["step"].max())
            if arm == of_model["arm"].iloc[0]:
                yield [str(model), BEFORE, "0", *_cells(runs, of_arm[of_arm["step"] == 0])]
            yield [str(model), str(arm), str(last), *_cells(runs, of_arm[of_arm["step"] == last])]


def _cells(runs: Runs, rows: pd.DataFrame) -> list[str]:
    """pass@1 of each tier and of their mean, with the half-width of its interval."""
    shares = [rows.loc[rows["tier"] == tier, "share"] for tier in _tiers(runs)]
    variances = [share.var() / len(share) for share in shares]
    means = [share.mean() for share in shares]
    overall = sum(means) / len(means), sum(variances) / len(variances) ** 2
    pairs = [*zip(means, variances, strict=True), overall]
    return [f"{100 * mean:.1f} ± {196 * math.sqrt(variance):.1f}" for mean, variance in pairs]


def _training(runs: Runs) -> Iterator[list[str]]:
    """Rows of the second grid."""
    for (model, arm), rows in runs.steps().groupby(["model", "arm"], sort=False):
        steps = rows["step"] / rows["step"].max()
        first, last = rows[steps <= 1 - LATE], rows[steps > LATE]
        moves = [f"{first[name].mean():.2f} to {last[name].mean():.2f}" for name in COMPOSITION]
        end = rows.sort_values("step").iloc[-1]
        yield [str(model), str(arm), *moves, f"{end['cost/rollouts']:,.0f}", f"{end['cost/seconds'] / 60:.1f}"]


def _draw(axes: Axes, rows: pd.DataFrame) -> None:
    base.curves(axes, rows, "value", points=rows["quantity"].iloc[0] == CURVES[0])
    base.integer_ticks(axes)
    axes.set(xlabel="global step", ylabel="share", ylim=(0, 1))


def _sentence(points: pd.DataFrame) -> str:
    held_out = points[points["quantity"] == CURVES[0]]
    start = held_out.loc[held_out["step"] == 0, "value"].mean()
    ends = held_out[held_out["step"] == held_out["step"].max()].groupby("arm", sort=False)["value"].mean()
    reached = ", ".join(f"{value:.3f} under {arm}" for arm, value in ends.items())
    return (
        f"Held-out pass@1, mean over tiers, goes from {start:.3f} before training to {reached} ({averaged(held_out)})."
    )


ARTIFACT = Artifact(SUITE, TITLE, DIAGNOSTICS, (SUITE,), build)
