"""Outcomes of a suite's arms side by side: for each run, as means over seeds, and as differences to a baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from mcpo_cli.analysis import measures
from mcpo_cli.analysis.comparison import Row
from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.measures import LENGTH, STATISTICS
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.run_numbers import WHOLE, Measure, Numbers, end, of_probe, of_steps
from mcpo_cli.config.plan import PlannedRun


@dataclass(frozen=True)
class Outcomes:
    """The table and figure of a suite."""

    artifact: str
    title: str
    baseline: str
    measures: Mapping[str, Measure]
    drawn: Mapping[str, str]
    """Outcomes of the figure, with the words of its axes."""
    notes: tuple[str, ...]
    """Meaning of the outcomes that are no statistics."""


def _entropy(runs: Runs, cell: PlannedRun) -> Numbers:
    last = runs.journal(cell).steps()[-1]
    return {WHOLE: last["metrics"]["train/entropy"]}


def _statistics(*names: str) -> dict[str, Measure]:
    return {name: STATISTICS[name].measure for name in names}


ENTROPY = "entropy: of the policy in nats, at the last step."
KEPT: dict[str, Measure] = {
    **_statistics("pass@1", "best@8", "mastered share in the end"),
    "entropy": _entropy,
    **_statistics("next-step gap"),
    "gap after 4 steps": of_probe("mastery", "gap_lag_4"),
    "gap after 16 steps": of_probe("mastery", "gap_lag_16"),
    "forgotten": of_probe("transitions", "forgotten"),
    "relearned": of_probe("transitions", "relearned"),
    "steps to repair": of_probe("transitions", "repair_steps"),
}
KEPT_DRAWN = {
    "pass@1": "pass@1",
    "next-step gap": "gap, next step",
    "gap after 16 steps": "gap, 16 steps later",
    "forgotten": "times forgotten",
}
KEPT_NOTES = (
    ENTROPY,
    "gap after n steps: same-policy accuracy of mastered prompts minus that n global steps later.",
    "forgotten, relearned: of the panel's fixed training prompts, changes from all rollouts right to not, and back, "
    "between two samplings of the panel (probe.panel_every steps); chance alone makes some. steps to repair: from one "
    "that is not all right any more to the next that is (Kaplan-Meier, restricted mean).",
)
WHOLE_RUNS: dict[str, Measure] = {
    **_statistics("pass@1 at equal steps", "pass@1 at equal rollouts", "pass@1", "pass@1 gained", "best@8"),
    **_statistics("mastered share in the end"),
    "entropy": _entropy,
    "response length": of_steps(end, LENGTH),
    **_statistics("next-step gap"),
}
WHOLE_DRAWN = {
    "pass@1 at equal steps": "at equal steps",
    "pass@1 at equal rollouts": "at equal rollouts",
    "best@8": "pass@8, at the end",
    "next-step gap": "gap, next step",
}
WHOLE_NOTES = (ENTROPY, "response length: tokens of the rollouts, mean over the last fifth of the steps.")
KEPT_SHOWN = "nothing", KEPT, KEPT_DRAWN, KEPT_NOTES
WHOLE_SHOWN = "DAPO w/o filter", WHOLE_RUNS, WHOLE_DRAWN, WHOLE_NOTES
SUITES = {
    "retention-again": Outcomes("retention-outcomes", "Ways to keep what was mastered", *KEPT_SHOWN),
    "opposite-weights": Outcomes("weights-outcomes", "Opposite weights, and what is kept", *KEPT_SHOWN),
    "smollm2-runs": Outcomes("smollm2-runs-outcomes", "Whole runs of SmolLM2-135M", *WHOLE_SHOWN),
    "smollm2-runs-again": Outcomes("smollm2-runs-again-outcomes", "Whole runs of SmolLM2-135M once more", *WHOLE_SHOWN),
}


def draw(rows: Sequence[Row], drawn: Mapping[str, str]) -> Figure:
    """A panel per outcome: each arm's difference to the baseline with its 95 % interval; a filled point excludes 0."""
    arms = [*dict.fromkeys(row["arm"] for row in rows if "difference" in row)]
    with base.drawing():
        figure, axes = base.canvas(1, len(drawn), width=base.PAGE, height=0.9 + 0.2 * len(arms), sharey=True)
        for panel, (name, label) in zip(axes, drawn.items(), strict=True):
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
    """One row per arm and outcome, and one per run."""
    ((suite, runs),) = data.items()
    shown = SUITES[suite]
    of_runs = measures.per_run(runs, shown.measures)
    rows = measures.rows(of_runs, shown.measures, shown.baseline)
    notes = [
        "Means over seeds with 95% t-intervals; in brackets the difference, paired by base and seed, to "
        f"{shown.baseline}.",
        *(f"{name}: {STATISTICS[name].meaning}." for name in shown.measures if name in STATISTICS),
        f"The figure shows differences to {shown.baseline} with 95% t-intervals; a filled point's interval excludes 0.",
        *shown.notes,
    ]
    least = min((row for row in rows if row["statistic"] == "next-step gap"), key=lambda row: row["mean"])
    most = max((row for row in rows if row["statistic"] == "pass@1"), key=lambda row: row["mean"])
    sentence = (
        f"The smallest next-step gap has {least['arm']} ({least['mean']:.4f}), the highest pass@1 {most['arm']} "
        f"({most['mean']:.3f}); means, not verdicts."
    )
    frame = pd.DataFrame([*rows, *of_runs])
    return Product(
        base.titled(shown.title, runs), sentence, frame, measures.grids(rows), notes, draw(rows, shown.drawn)
    )


ARTIFACTS = tuple(
    Artifact(one.artifact, one.title, "diagnostic", (suite,), build, by_regime=True) for suite, one in SUITES.items()
)
