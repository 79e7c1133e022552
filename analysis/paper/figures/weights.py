"""Figures of prompts' weights in the update: Figures 1, 3b and 4, and gradient norms."""

import textwrap
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import LogLocator, NullLocator

from mcpo_cli.config.plan import PlannedRun
from mcpo_cli.config.schema import Train
from mcpo_cli.measures.base import CLASSES, class_of
from mcpo_cli.measures.frames import PAIR, Runs
from mcpo_cli.methods import Method, get, query_weight
from mcpo_cli.methods.mcpo import Mcpo
from mcpo_cli.render.figures import base
from mcpo_cli.render.figures.base import KEYS
from mcpo_cli.render.product import Artifact, Product
from mcpo_cli.statistics import clusters

from ..sections import BEYOND, PAPER, place
from .declare import FigureContent, Quantity, caption, figure, left_out, lines, per_run

SCHEMATIC = "What DAPO and MCPO do with a prompt, by the accuracy of its rollouts"
G = Train().rollouts
METHODS = {"DAPO": get("dapo"), "MCPO": get("mcpo")}
CONDITIONS = ("p = 0", "0 < p \N{LESS-THAN OR EQUAL TO} \N{VULGAR FRACTION ONE HALF}",
              "\N{VULGAR FRACTION ONE HALF} < p < 1", "p = 1")  # fmt: skip
WIDTH, HEIGHT = 100.0, 40.0
"""Size of Figure 1 in its own units."""
LEFT, TOP, CELL, GAP = 27.0, 33.0, (17.4, 14.5), 0.9
"""Left and top edge of the cells, width and height of one cell, space between cells."""


def build_schematic(_: Mapping[str, Runs]) -> Product:
    """One row per method and number of correct rollouts. The drawing is ours, not the paper's."""
    rows = pd.DataFrame(
        {
            "method": arm,
            "class": class_of(k / G),
            "p": k / G,
            "weight": float(method.query_weight(k / G)),
            "what": _treatment(method, class_of(k / G)),
        }
        for arm, method in METHODS.items()
        for k in range(G + 1)
    )
    with base.drawing():
        picture, (axes,) = base.canvas(width=base.PAGE, height=2.75)
        axes.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
        axes.set_axis_off()
        _draw_sampling(axes)
        for column, (name, condition) in enumerate(zip(CLASSES, CONDITIONS, strict=True)):
            x = LEFT + column * (CELL[0] + GAP) + CELL[0] / 2
            axes.text(x, TOP + 4.6, name.replace("_", " "), ha="center", weight="bold")
            axes.text(x, TOP + 1.2, condition, ha="center")
        for row, arm in enumerate(METHODS):
            _draw_method(axes, rows[rows["method"] == arm], arm, TOP - (row + 1) * (CELL[1] + GAP))
    notes = [
        f"Bars: W(p) for p = k/{G}, one bar per k: sqrt(p (1 - p)) (Eq. 6), under MCPO only up to p = 1/2 (Eq. 14). "
        f"All bars have one scale; the highest is {rows['weight'].max():.2f}.",
        "The filter is dynamic sampling: it replaces dropped prompts with newly sampled ones.",
    ]
    by_arm = rows.rename(columns={"method": "arm"}).set_index("arm")
    sentence = caption(
        "Of a prompt,",
        Quantity(f"the weight at p = {G - 1}/{G}", by_arm.loc[by_arm["p"] == 1 - 1 / G, "weight"], "", 2),
        Quantity("the treatment at p = 1", by_arm.loc[by_arm["p"] == 1, "what"].astype("string")),
    )
    return Product(SCHEMATIC, sentence, rows, notes=notes, figure=picture)


def _treatment(method: Method, group: str) -> str:
    """The method's treatment of a prompt of the class `group`, in a few words."""
    if group in ("minority", "majority_correct"):
        weight = method.query_weight(np.arange(1, G) / G)
        part = weight[: G // 2] if group == "minority" else weight[G // 2 :]
        if np.allclose(part, part[0]):
            return f"weight stays at {part[0]:.1f}"
        return "weight grows with p" if part[-1] > part[0] else "weight shrinks with p"
    if method.dynamic_sampling:
        return "dropped by the filter"
    if group == "mastered" and isinstance(method, Mcpo) and method.penalises_drift:
        return f"drift beyond {method.delta:g} nats penalised (hinge-KL)"
    return "kept in the batch, no gradient"


def _box(axes: Axes, x: float, y: float, size: tuple[float, float], **style: Any) -> None:
    shape = "round,pad=0,rounding_size=1"
    axes.add_patch(FancyBboxPatch((x, y), *size, boxstyle=shape, linewidth=0.8, **style))


def _draw_sampling(axes: Axes) -> None:
    """Draw the way from a prompt to its accuracy, from top to bottom."""
    width, height = 17.0, 8.6
    steps = ("prompt x", f"G = {G} rollouts\nof the old policy", "p = share of\ncorrect rollouts")
    for row, label in enumerate(steps):
        y = TOP - GAP - height - row * (height + 2.0)
        _box(axes, 0.5, y, (width, height), facecolor="#f4f4f4", edgecolor="#222222")
        axes.text(0.5 + width / 2, y + height / 2, label, ha="center", va="center", fontsize=7)
        if row:
            arrow = {"arrowstyle": "-|>", "color": "#222222", "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (0.5 + width / 2, y + height), (0.5 + width / 2, y + height + 2.0), arrowprops=arrow)


def _draw_method(axes: Axes, rows: pd.DataFrame, arm: str, bottom: float) -> None:
    color = base.looks([arm])[arm].color
    axes.text(LEFT - 2.0, bottom + CELL[1] / 2, arm, ha="right", va="center", weight="bold", color=color)
    for column, (_, part) in enumerate(rows.groupby("class", sort=False)):
        x, label = LEFT + column * (CELL[0] + GAP), part["what"].iloc[0]
        dropped = label.startswith("dropped")
        style = {"facecolor": "#f4f4f4", "edgecolor": base.GREY, "linestyle": (0, (3, 2))}
        _box(axes, x, bottom, CELL, **(style if dropped else {"facecolor": "white", "edgecolor": color}))
        middle = x + CELL[0] / 2
        if part["weight"].any():
            width = (CELL[0] - 3.0) / (G // 2)
            left = middle - len(part) / 2 * width + np.arange(len(part)) * width
            axes.bar(left, 15 * part["weight"], 0.75 * width, bottom=bottom + 5.2, align="edge", color=color)
            axes.text(middle, bottom + 2.6, textwrap.fill(label, 15), ha="center", va="center", fontsize=7)
        else:
            axes.text(middle, bottom + CELL[1] / 2, textwrap.fill(label, 16), ha="center", va="center", fontsize=7)


GRADIENTS = "gradients of single prompts"
THEORY, MEASURED = "theory", "gradients"
GRID = np.sin(np.linspace(0, np.pi / 2, 201)) ** 2
"""Accuracies from 0 to 1, dense where sqrt(p(1 - p)) is steep."""
PLAIN = query_weight("grpo", GRID)
WEIGHT = ["weight", "weight_low", "weight_high"]
COLUMNS = [*KEYS, "run_id", "source", "p", *WEIGHT, "prompts"]
INTEGERS = dict.fromkeys((*PAIR, "prompts"), "Int64")
"""Integer columns, which rows of the theory lack."""
WEIGHT_NOTES = (
    "Line: W(p) of the method (Eq. 6, Eq. 14), 0 at p = 0 and p = 1. Points: v . u / |u|^2, where v is the descent "
    "direction of the prompt's loss and u the gradient of s+ - s- (Eq. 5), mean over prompts of equal accuracy.",
    "Points: means over all prompts of all seeds. Bars: 95 % intervals that allow for the dependence of prompts of one "
    "seed (with one seed, of prompts of one step). Points without a bar: prompts of fewer than three seeds (steps).",
)


def _weights(name: str, title: str, *, reweighted: bool) -> Artifact:
    """Query weights of the arms whose weights differ from GRPO's (`reweighted`), or of those with GRPO's weights."""

    def drawn(runs: Runs) -> list[PlannedRun]:
        curves = [(run, run.spec.method.query_weight(GRID)) for run in runs.planned]
        return [run for run, W in curves if np.isfinite(W).all() and np.allclose(W, PLAIN) != reweighted]

    @figure(
        name, title, "table2", partial(_draw_weights, reweighted=reweighted), band=False, height=2.3,
        what=GRADIENTS, section=PAPER, place=place(name),
        arms=lambda runs: list(dict.fromkeys(run.arm for run in drawn(runs))),
    )  # fmt: skip
    def artifact(runs: Runs) -> FigureContent:
        """Rows of two kinds (`source`): the theory by arm and model; one per run and accuracy with gradients."""
        names = {"measured": "weight", "measured_low": "weight_low", "measured_high": "weight_high"}
        measured = runs.findings("weights", "curve", partial=True).rename(columns=names).assign(source=MEASURED)
        measured = measured.reindex(columns=COLUMNS).astype(INTEGERS).dropna(subset="weight")
        theory, compared = [pd.DataFrame(columns=COLUMNS)], []
        for (model, arm), spec in {(run.spec.model.name, run.arm): run.spec for run in drawn(runs)}.items():
            W, part = spec.method.query_weight, measured[(measured["model"] == model) & (measured["arm"] == arm)]
            labels, weight_P = {"model": model, "arm": arm}, _points(part)["weight"]
            theory.append(pd.DataFrame({**labels, "source": THEORY, "p": GRID, "weight": W(GRID)}))
            deviation = (weight_P - W(weight_P.index.to_numpy(dtype=float))).abs().max()
            top, half = W(1 - 1 / spec.train.rollouts), W(0.5)
            compared.append({**labels, "top": top, "half": half, "off": deviation, "prompts": part["prompts"].sum()})
        curves = pd.concat(theory).reindex(columns=COLUMNS).astype(INTEGERS)
        rows = pd.concat([curves, measured]) if len(measured) else curves
        by_arm = pd.DataFrame(compared, columns=["model", "arm", "top", "half", "off", "prompts"])
        by_arm = by_arm.set_index(["model", "arm"])
        sentence = caption(
            "Query weight W(p)",
            Quantity("in theory with all but one rollout correct", by_arm["top"], "", 3),
            Quantity("with half of them correct", by_arm["half"], "", 3),
            Quantity("largest deviation of measured gradients from theory", by_arm["off"], "", 4),
            Quantity("number of measured prompts", by_arm["prompts"], "", 0),
        )
        return FigureContent(rows, sentence, WEIGHT_NOTES)

    return artifact


def _points(measured: pd.DataFrame) -> pd.DataFrame:
    """Mean weight and its interval over the prompts of all runs of one arm, indexed by p."""
    points = {}
    for p, rows in measured.groupby("p"):
        if len(rows) == 1:
            points[p] = rows.iloc[0][WEIGHT].astype(float).tolist()
        else:
            mean = clusters.mean(rows["weight"], rows["prompts"].astype(float), rows["run_id"]).interval()
            points[p] = [mean.mean, mean.low, mean.high]
    return pd.DataFrame.from_dict(points, orient="index", columns=WEIGHT, dtype=float)


def _draw_weights(axes: Axes, rows: pd.DataFrame, reweighted: bool) -> None:
    if reweighted:
        axes.plot(GRID, PLAIN, color=base.GREY, linewidth=0.9, linestyle=":", label="GRPO, DAPO: theory")
    looks = base.looks(rows["arm"].unique().tolist())
    # Equal curves are drawn once; curves end before p = 1, where the weight jumps to 0.
    theory = rows[(rows["source"] == THEORY) & (rows["p"] < 1)]
    curves = theory.pivot(index="p", columns="arm", values="weight").round(9).T.drop_duplicates().T
    for arm, curve in curves.items():
        color, line = ("black", "-") if curves.shape[1] == 1 else (looks[str(arm)].color, looks[str(arm)].linestyle)
        label = "theory" if curves.shape[1] == 1 else f"{arm}: theory"
        axes.plot(curve.index, curve, color=color, linestyle=line, linewidth=1, label=label)
    for index, (arm, part) in enumerate(rows[rows["source"] == MEASURED].groupby("arm", sort=False)):
        points, look = _points(part), looks[str(arm)]
        reach = [points["weight"] - points["weight_low"], points["weight_high"] - points["weight"]]
        # Points of several arms overlap: the first arm's markers are large and open, the others' fit inside.
        marks: dict[str, Any] = {"color": look.color, "markersize": 6.5 / (1 + index)}
        marks["markerfacecolor"] = look.color if index else "none"
        axes.errorbar(points.index, points["weight"], reach, fmt=look.marker, label=str(arm) + ": gradients", **marks)
    axes.margins(y=0.1)
    axes.set(xlabel="rollout accuracy p", ylabel="query weight W(p)")
    axes.set_ylim(bottom=0, auto=True)


UPDATE, PROMPT = "update", "single prompts"
QUANTILES = {0.1: "decile_1", 0.25: "quartile_1", 0.5: "median", 0.75: "quartile_3", 0.9: "decile_9"}
SPREAD = 0.7
"""Width of one class's arms as a share of the distance between classes."""


def _draw_norms(axes: Axes, rows: pd.DataFrame) -> None:
    is_update = rows["panel"].iloc[0] == UPDATE
    if is_update:
        lines("norm", "gradient norm", points=False)(axes, rows)
    else:
        _draw_classes(axes, rows)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if is_update else (1,)))
    axes.yaxis.set_major_formatter(lambda norm, _: f"{norm:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _draw_classes(axes: Axes, rows: pd.DataFrame) -> None:
    """Per class and arm: a line from the first to the last decile, a thick line over the middle half, the median."""
    classes = [name for name in CLASSES if name in set(rows["prompt_class"])]
    looks = base.looks(rows["arm"].unique().tolist())
    for number, (arm, look) in enumerate(looks.items()):
        x = np.arange(len(classes)) + SPREAD * ((number + 0.5) / len(looks) - 0.5)
        mean = rows[rows["arm"] == arm].groupby("prompt_class")[[*QUANTILES.values()]].mean().reindex(classes)
        axes.vlines(x, mean["decile_1"], mean["decile_9"], color=look.color, linewidth=0.8)
        axes.vlines(x, mean["quartile_1"], mean["quartile_3"], color=look.color, linewidth=2.4, alpha=0.5)
        axes.plot(x, mean["median"], color=look.color, linestyle="none", marker=look.marker, markersize=3)
    axes.set_xticks(range(len(classes)), [name.removesuffix("_correct") for name in classes])
    axes.set(xlabel="class of the prompt\n(median, middle half, 80%)", ylabel="gradient norm")
    axes.grid(visible=False, axis="x")


@figure(
    "gradients", "Gradient norms", "table2", _draw_norms,
    what="gradient norm", section=BEYOND, by="panel", sharey=False,
)  # fmt: skip
def gradients(runs: Runs) -> FigureContent:
    """Rows of two kinds (`panel`): gradient norm of a run at a step; quantiles over a run's prompts of one class."""
    steps = runs.steps().reindex(columns=[*KEYS, "run_id", "step", "train/grad_norm"])
    steps = steps.rename(columns={"train/grad_norm": "norm"}).dropna(subset="norm").assign(panel=UPDATE)
    prompts = runs.rows("gradients")
    prompts = prompts.assign(class_index=[CLASSES.index(class_of(p)) for p in prompts["p"]])
    groups = prompts.groupby([*KEYS, "run_id", "class_index"], sort=False)["norm"]
    quantiles = groups.quantile(np.array([*QUANTILES])).unstack().rename(columns=QUANTILES)
    table = quantiles.assign(prompts=groups.size()).reset_index()
    table = table.assign(prompt_class=[CLASSES[class_index] for class_index in table.pop("class_index")], panel=PROMPT)
    rows = pd.concat([steps, table], ignore_index=True)
    by_class = table.groupby("prompt_class", sort=False)
    sentence = caption(
        "Gradient norm",
        Quantity("of the update", per_run(steps, "norm"), "", 2),
        *(
            Quantity(f"of single {str(name).replace('_', ' ')} prompts (median)", per_run(part, "median"), "", 2)
            for name, part in by_class
        ),
    )
    if table.empty:
        return FigureContent(rows, sentence, [f"No run recorded {GRADIENTS}."])
    counts = ", ".join(f"{count} {name}" for name, count in by_class["prompts"].sum().astype(int).items())
    notes = [
        "Left: norm before clipping, mean over the gradient steps of a global step.",
        "Right: marker: median; thick line: middle half; thin line: first to last decile; over a run's measured "
        "prompts of all steps, then mean over seeds. Prompts with 0 < p < 1: gradient of their own policy loss; "
        "mastered prompts: gradient of their likelihood, which is not part of the loss.",
        f"Measured prompts: {counts}.",
        *left_out(table, runs, GRADIENTS),
    ]
    return FigureContent(rows, sentence, notes)


ARTIFACTS = (
    Artifact("fig1", SCHEMATIC, PAPER, (), build_schematic, "Figure 1"),
    _weights("fig3b", "Query weight without reweighting", reweighted=False),
    _weights("fig4", "Query weight with reweighting", reweighted=True),
    gradients,
)
