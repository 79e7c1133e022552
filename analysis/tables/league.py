"""The league of methods: every suite `methods-*` in one table, against the suite's first arm, with its controls."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from mcpo_cli.analysis import method_measures
from mcpo_cli.analysis.comparison import BOOTSTRAP_SEED
from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.measures import STATISTICS, WHOLE
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.render import Grid
from mcpo_cli.config.plan import Cell
from mcpo_cli.statistics import effects, stats
from mcpo_cli.statistics.stats import Floats

SUITES = tuple(
    f"methods-{name}"
    for name in ("weights", "baselines", "zero-variance", "mastered", "ratio", "small-groups", "diversity")
)
TWINS = {"methods-weights": ("RLOO", "Dr. GRPO")}
"""Arms whose advantages differ by a constant factor alone: a difference between them is noise, or step size."""
CLIPPED = 0.05
"""Share of global steps above `train.grad_clip` from which an arm is named as clipped."""
NOTES = (
    "Arms are in the order of IQM, the mean of the middle half of the pass@1 of all tiers and seeds after the last "
    "step (Agarwal et al. 2021). P(better): probability that a run of the arm beats a run of the suite's first arm. "
    "Both with 95% intervals of a bootstrap that draws whole runs; with 5 seeds they cover about 88%.",
    "difference: mean pass@1 minus the first arm's, paired by seed, with a 95% t-interval over seeds; at equal "
    "rollouts: the same once a run has sampled what a run without refills samples in all. Many intervals stand here "
    "together: one in twenty leaves out 0 by chance.",
    "gradient norm: mean over the first fifth of the steps, as a multiple of the first arm's. AdamW divides a scale "
    "out, and clipping of gradients does not: an arm whose norm is above train.grad_clip in more than 5% of its steps "
    "is marked as clipped, and its step size differs as well as its method.",
    "Negative controls: an arm that is rewarded by coins must gain nothing over the base policy, and arms that differ "
    "by a constant factor of the advantage must not differ.",
)


def build(data: Mapping[str, Runs]) -> Product:
    """One row per suite, model and arm."""
    rows = [row for suite in SUITES for row in _rows(suite, data[suite])]
    spec = data[SUITES[0]].cells[0].spec
    warnings = [text for suite in SUITES for text in _warnings(suite, data[suite])]
    curves = pd.concat([_curves(suite, data[suite]) for suite in SUITES], ignore_index=True)
    figure = base.grid(curves, "suite", _draw, height=2.0, sharey=False, sharex=False)
    title = f"League of methods (scale {spec.scale}, {len(SUITES)} suites)"
    grids = [_glance(data, rows, warnings), *(_grid(suite, data[suite], rows) for suite in SUITES)]
    return Product(title, _sentence(rows, warnings), pd.DataFrame(rows), grids, [*warnings, *NOTES], figure)


def _rows(suite: str, runs: Runs) -> Iterator[dict[str, Any]]:
    for model in dict.fromkeys(cell.spec.model.name for cell in runs.cells):
        arms: dict[str, list[Cell]] = {}
        for cell in runs.cells:
            if cell.spec.model.name == model:
                arms.setdefault(cell.arm, []).append(cell)
        first = next(iter(arms))
        score, equal = ({arm: f(runs, cells) for arm, cells in arms.items()} for f in (_scores, _equal))
        norm = {arm: _norms(runs, cells) for arm, cells in arms.items()}
        found = []
        for arm, cells in arms.items():
            iqm = effects.interquartile_mean([score[arm]], _generator())
            row: dict[str, Any] = {"suite": suite, "model": model, "arm": arm, "seeds": len(cells)}
            row |= {"iqm": iqm.value, "iqm_low": iqm.low, "iqm_high": iqm.high}
            if arm != first:
                better = effects.probability_of_improvement([score[arm]], [score[first]], _generator())
                row |= {"better": better.value, "better_low": better.low, "better_high": better.high}
                row |= _paired("difference", score[arm].mean(axis=1) - score[first].mean(axis=1))
                row |= _paired("equal", equal[arm] - equal[first])
            row["norm"] = norm[arm][0] / norm[first][0]
            row["clipped"] = norm[arm][1]
            found.append(row)
        yield from sorted(found, key=lambda row: -row["iqm"])


def _scores(runs: Runs, cells: Sequence[Cell]) -> Floats:
    """pass@1 after the last step, seeds x tiers."""
    return np.array([list(STATISTICS["pass@1 by tier"].measure(runs, cell).values()) for cell in cells])


def _equal(runs: Runs, cells: Sequence[Cell]) -> Floats:
    """pass@1 at equal rollouts, one number a seed."""
    return np.array([method_measures.at_equal_rollouts(runs, cell)[WHOLE] for cell in cells])


def _norms(runs: Runs, cells: Sequence[Cell]) -> tuple[float, float]:
    """Mean gradient norm over the first fifth of the steps, and the share of all steps whose norm is clipped."""
    early, above = [], []
    for cell in cells:
        norm_T = np.array([row["metrics"]["train/grad_norm"] for row in runs.journal(cell).steps()])
        early.append(norm_T[: max(1, len(norm_T) // 5)].mean())
        above.append((norm_T > cell.spec.train.grad_clip).mean())
    return float(np.mean(early)), float(np.mean(above))


def _paired(name: str, diff_S: Floats) -> dict[str, float]:
    interval = stats.t_interval(diff_S)
    return {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _generator() -> np.random.Generator:
    # Each number has its own generator, so that adding an arm changes no other number.
    return np.random.default_rng(BOOTSTRAP_SEED)


def _warnings(suite: str, runs: Runs) -> Iterator[str]:
    """What a negative control shows that it should not."""
    coins: dict[tuple[str, str], list[float]] = {}
    for cell in runs.cells:
        if cell.spec.train.reward == "random":
            gained = method_measures.gained(runs, cell)[WHOLE]
            coins.setdefault((cell.spec.model.name, cell.arm), []).append(gained)
    for (model, arm), values in coins.items():
        interval = stats.t_interval(values)
        if interval.low > 0:
            yield (
                f"WARNING: {arm} gains {interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}] in pass@1 "
                f"({suite}, {model}), though coins reward it: gains of this size in {suite} do not come from rewards "
                "alone"
            )
    if suite in TWINS:
        for model, pair in _twins(suite, runs).items():
            if pair.low > 0 or pair.high < 0:
                yield (
                    f"WARNING: {' and '.join(TWINS[suite])} differ by {pair.mean:+.3f} [{pair.low:.3f}, "
                    f"{pair.high:.3f}] in pass@1 ({suite}, {model}), though their advantages differ by a constant "
                    "factor alone"
                )


def _twins(suite: str, runs: Runs) -> dict[str, stats.Interval]:
    """The difference between the two arms of TWINS, paired by seed, on each model."""
    found = {}
    for model in dict.fromkeys(cell.spec.model.name for cell in runs.cells):
        one, other = (
            _scores(runs, [cell for cell in runs.cells if (cell.arm, cell.spec.model.name) == (arm, model)])
            for arm in TWINS[suite]
        )
        found[model] = stats.t_interval((one - other).mean(axis=1))
    return found


def _curves(suite: str, runs: Runs) -> pd.DataFrame:
    """pass@1 of each run at each evaluation, by the rollouts sampled until then (`step` is their number)."""
    rows = []
    for cell in runs.cells:
        spent = method_measures.rollouts(runs, cell)
        about = {"suite": suite, "model": cell.spec.model.name, "arm": cell.arm, "seed": cell.spec.seed}
        rows += [
            {**about, "rollouts": spent[step], "value": value}
            for step, value in method_measures.accuracies(runs, cell).items()
        ]
    return pd.DataFrame(rows)


def _draw(axes: Axes, here: pd.DataFrame) -> None:
    looks = base.looks(here["arm"].unique().tolist())
    for arm, runs in here.groupby("arm", sort=False):
        # Runs with refills differ in rollouts: their evaluations are averaged in order.
        mean = runs.assign(place=runs.groupby("seed").cumcount()).groupby("place")[["rollouts", "value"]].mean()
        look = looks[str(arm)]
        axes.plot(mean["rollouts"], mean["value"], color=look.color, linestyle=look.linestyle, label=arm, linewidth=0.9)
    axes.set(xlabel="rollouts", ylabel="pass@1")


def _glance(data: Mapping[str, Runs], rows: Sequence[Mapping[str, Any]], warnings: Sequence[str]) -> Grid:
    """One line a suite: who leads, who is above or below the first arm."""
    lines = []
    for suite in SUITES:
        here = [row for row in rows if row["suite"] == suite]
        tested = [row for row in here if "equal" in row]
        above = [row["arm"] for row in tested if _above(row)]
        below = [row["arm"] for row in tested if _below(row)]
        warned = "WARNING" if any(f"({suite}," in text for text in warnings) else "quiet"
        first = data[suite].cells[0].arm
        lines.append([suite, here[0]["arm"], first, ", ".join(above) or "-", ", ".join(below) or "-", warned])
    header = ["suite", "leads", "against", "above at equal rollouts", "below at equal rollouts", "controls"]
    return Grid("At a glance", header, lines, labels=len(header))


def _grid(suite: str, runs: Runs, rows: Sequence[Mapping[str, Any]]) -> Grid:
    header = ["arm", "model", "seeds", "IQM", "P(better)", "difference", "at equal rollouts", "gradient norm", ""]
    lines = [
        [
            *(row["arm"], row["model"], str(row["seeds"])),
            *(_shown(row, name) for name in ("iqm", "better", "difference", "equal")),
            f"{row['norm']:.2f}",
            "clipped" if row["clipped"] > CLIPPED else "",
        ]
        for row in rows
        if row["suite"] == suite
    ]
    return Grid(f"{suite}: {runs.cells[0].arm} is the first arm", header, lines, labels=2)


def _shown(row: Mapping[str, Any], name: str) -> str:
    if name not in row:
        return "-"
    value, low, high = (row[f"{name}{bound}"] for bound in ("", "_low", "_high"))
    text = f"{value:.3f}" if name in ("iqm", "better") else f"{value:+.3f}"
    return f"{text} n=1" if np.isnan(low) else f"{text} [{low:.3f}, {high:.3f}]"


def _sentence(rows: Sequence[Mapping[str, Any]], warnings: Sequence[str]) -> str:
    tested = [row for row in rows if "equal" in row]
    above, below = (sum(test(row) for row in tested) for test in (_above, _below))
    controls = f"{len(warnings)} negative controls warn" if warnings else "no negative control warns"
    return (
        f"Of {len(tested)} arms, {above} have a higher pass@1 than their suite's first arm at equal rollouts and "
        f"{below} a lower one (95% intervals over seeds, none adjusted for their number); {controls}."
    )


def _above(row: Mapping[str, Any]) -> bool:
    return bool(row["equal_low"] > 0)


def _below(row: Mapping[str, Any]) -> bool:
    return bool(row["equal_high"] < 0)


ARTIFACT = Artifact("methods", "League of methods", "diagnostic", SUITES, build)
