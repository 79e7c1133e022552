"""Benefit and cost of each way to keep mastered prompts: suites `retention-again` and `opposite-weights`."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.measures import STATISTICS
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.run_numbers import WHOLE, Measure, Numbers, of_probe
from mcpo_cli.analysis.tables import measured
from mcpo_cli.config.plan import PlannedRun

TITLES = {"retention-again": "Ways to keep what was mastered", "opposite-weights": "Opposite weights, and what is kept"}
BASELINE = "nothing"
LATER = (4, 16)
PANEL = {"forgotten": "forgotten", "relearned": "relearned", "repair_steps": "steps to repair"}
COMPUTED = ("pass@1", "best@8", "mastered share in the end")


def _entropy(runs: Runs, cell: PlannedRun) -> Numbers:
    last = runs.journal(cell).steps()[-1]
    return {WHOLE: last["metrics"]["train/entropy"]}


MEASURES: dict[str, Measure] = {
    **{name: STATISTICS[name].measure for name in COMPUTED},
    "entropy": _entropy,
    "next-step gap": STATISTICS["next-step gap"].measure,
    **{f"gap after {lag} steps": of_probe("mastery", f"gap_lag_{lag}") for lag in LATER},
    **{heading: of_probe("transitions", name) for name, heading in PANEL.items()},
}


DRAWN = {
    "pass@1": "pass@1",
    "next-step gap": "gap, next step",
    "gap after 16 steps": "gap, 16 steps later",
    "forgotten": "times forgotten",
}
"""Outcomes of the figure, with the words of its axes."""


def draw(rows: Sequence[measured.Row]) -> Figure:
    """A panel per outcome: each arm's difference to the baseline with its 95 % interval; a filled point excludes 0."""
    arms = [*dict.fromkeys(row["arm"] for row in rows if "difference" in row)]
    with base.drawing():
        figure, axes = base.canvas(1, len(DRAWN), width=base.PAGE, height=0.9 + 0.2 * len(arms), sharey=True)
        for panel, (name, label) in zip(axes, DRAWN.items(), strict=True):
            for row in rows:
                if row["statistic"] == name and "difference" in row:
                    middle, low, high = row["difference"], row["difference_low"], row["difference_high"]
                    fill = "black" if low > 0 or high < 0 else "white"
                    panel.errorbar(
                        middle, arms.index(row["arm"]), xerr=[[middle - low], [high - middle]],
                        color="black", marker="o", markersize=4, markerfacecolor=fill, elinewidth=0.9,
                    )  # fmt: skip
            panel.axvline(0, color=base.GREY, linewidth=0.8)
            panel.set_xlabel(label)
        axes[0].set_yticks(range(len(arms)), arms)
        axes[0].invert_yaxis()
    return figure


def build(data: Mapping[str, Runs]) -> Product:
    """One row per arm and outcome."""
    ((suite, runs),) = data.items()
    of_runs = measured.per_run(runs, MEASURES)
    rows = measured.rows(of_runs, MEASURES, BASELINE)
    spec = runs.cells[0].spec
    notes = [
        f"Means over seeds with 95% t-intervals; in brackets the difference to {BASELINE}, paired by base and seed.",
        *(f"{name}: {STATISTICS[name].meaning}." for name in (*COMPUTED, "next-step gap")),
        f"The figure shows differences to {BASELINE} with 95% t-intervals; a filled point's interval excludes 0.",
        "entropy: of the policy in nats, at the last step.",
        "gap after n steps: same-policy accuracy of mastered prompts minus that n global steps later.",
        f"forgotten, relearned: of {spec.probe.panel} fixed training prompts, changes from all rollouts right to not, "
        f"and back, between samplings {spec.probe.panel_every} steps apart; chance alone makes some. steps to repair: "
        "from one that is not all right any more to the next that is (Kaplan-Meier, restricted mean).",
    ]
    least = min((row for row in rows if row["statistic"] == "next-step gap"), key=lambda row: row["mean"])
    most = max((row for row in rows if row["statistic"] == "pass@1"), key=lambda row: row["mean"])
    sentence = (
        f"The smallest next-step gap has {least['arm']} ({least['mean']:.4f}), the highest pass@1 {most['arm']} "
        f"({most['mean']:.3f}); means, not verdicts."
    )
    title = f"{TITLES[suite]} (scale {spec.scale}, {spec.train.steps} global steps)"
    return Product(title, sentence, pd.DataFrame([*rows, *of_runs]), measured.grids(rows), notes, draw(rows))


ARTIFACTS = (
    Artifact(
        "retention-outcomes", TITLES["retention-again"], "diagnostic", ("retention-again",), build, by_regime=True
    ),
    Artifact(
        "weights-outcomes", TITLES["opposite-weights"], "diagnostic", ("opposite-weights",), build, by_regime=True
    ),
)
