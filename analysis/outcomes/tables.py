"""Outcomes of a suite's arms side by side: for each run, as means over seeds, and as differences to a baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from mcpo_cli.measures.frames import Runs
from mcpo_cli.render.figures import base
from mcpo_cli.render.product import DIAGNOSTICS, Artifact, Product, Row
from mcpo_cli.report import numbers

from ..paper.figures.declare import titled
from . import arms


@dataclass(frozen=True)
class Outcomes:
    """The table and figure of a suite."""

    artifact: str
    title: str
    baseline: str
    numbers: Mapping[str, str]
    """Column -> number."""
    drawn: Mapping[str, str]
    """Outcomes of the figure, with the words of its axes."""


KEPT = {
    "pass@1": "scores.pass@1",
    "best@8": "scores.best@8",
    "mastered share in the end": "training.mastery/mastered in the end",
    "entropy": "training.train/entropy at the last step",
    "next-step gap": "mastery.gap",
    "gap after 4 steps": "mastery.gap_lag_4",
    "gap after 16 steps": "mastery.gap_lag_16",
    "forgotten": "transitions.forgotten",
    "relearned": "transitions.relearned",
    "steps to repair": "transitions.repair_steps",
}
KEPT_DRAWN = {
    "pass@1": "pass@1",
    "next-step gap": "gap, next step",
    "gap after 16 steps": "gap, 16 steps later",
    "forgotten": "times forgotten",
}
WHOLE_RUNS = {
    "pass@1 at equal steps": "scores.pass@1 at equal steps",
    "pass@1 at equal rollouts": "scores.pass@1 at equal rollouts",
    "pass@1": "scores.pass@1",
    "pass@1 gained": "scores.gained",
    "best@8": "scores.best@8",
    "mastered share in the end": "training.mastery/mastered in the end",
    "entropy": "training.train/entropy at the last step",
    "response length": "training.train/response_length in the end",
    "next-step gap": "mastery.gap",
}
WHOLE_DRAWN = {
    "pass@1 at equal steps": "at equal steps",
    "pass@1 at equal rollouts": "at equal rollouts",
    "best@8": "best@8, at the end",
    "next-step gap": "gap, next step",
}
TRUST = {
    "pass@1": "scores.pass@1",
    "best@8": "scores.best@8",
    "next-step gap": "mastery.gap",
    "tokens left out": "training.train/left_out",
    "tokens clipped above": "training.train/clip_high",
    "tokens clipped below": "training.train/clip_low",
    "tokens that IcePop leaves out": "training.rollout_corr/masked",
    "sampler's difference": "training.rollout_corr/logp_difference",
}
TRUST_DRAWN = {"pass@1": "pass@1", "best@8": "best@8", "next-step gap": "gap, next step"}
IN_TURN = {
    "kept of the first sort": "in_turn.kept",
    "learned of the last sort": "in_turn.learned",
    "average of both": "in_turn.average",
    "lost of the first sort": "in_turn.lost",
    "pass@1": "scores.pass@1",
    "next-step gap": "mastery.gap",
    "prompts that the hinge acts on": "hinge.prompts_felt",
}
IN_TURN_DRAWN = {"kept of the first sort": "kept", "learned of the last sort": "learned", "average of both": "average"}
TRUST_SHOWN = "clip", TRUST, TRUST_DRAWN
KEPT_SHOWN = "nothing", KEPT, KEPT_DRAWN
WHOLE_SHOWN = "DAPO w/o filter", WHOLE_RUNS, WHOLE_DRAWN
SUITES = {
    "retention-again": Outcomes("retention-outcomes", "Ways to keep what was mastered", *KEPT_SHOWN),
    "opposite-weights": Outcomes("weights-outcomes", "Opposite weights, and what is kept", *KEPT_SHOWN),
    "placebo": Outcomes("placebo-outcomes", "The hinge against placebos", "DAPO w/o filter", KEPT, KEPT_DRAWN),
    "headline": Outcomes("headline-outcomes", "DAPO and MCPO, with and without filter", *WHOLE_SHOWN),
    "smollm2-runs": Outcomes("smollm2-runs-outcomes", "Whole runs of SmolLM2-135M", *WHOLE_SHOWN),
    "smollm2-runs-again": Outcomes("smollm2-runs-again-outcomes", "Whole runs of SmolLM2-135M once more", *WHOLE_SHOWN),
    "smollm2-half-rate": Outcomes("half-rate-outcomes", "Whole runs of SmolLM2-135M at half the rate", *WHOLE_SHOWN),
    "returning": Outcomes("returning-outcomes", "One skill after another", "none", IN_TURN, IN_TURN_DRAWN),
    "trust-regions": Outcomes("trust-regions-outcomes", "Which tokens are left out", *TRUST_SHOWN),
    "trust-regions-rougher": Outcomes("trust-regions-rougher-outcomes", "The same, rougher sampler", *TRUST_SHOWN),
}


def draw(rows: Sequence[Row], labels: Mapping[str, str]) -> Figure:
    """A panel per outcome: each arm's difference to the baseline with its 95 % interval; a filled point excludes 0."""
    arms = [*dict.fromkeys(row["arm"] for row in rows if "difference" in row)]
    with base.drawing():
        figure, axes = base.canvas(1, len(labels), width=base.PAGE, height=0.9 + 0.2 * len(arms), sharey=True)
        for panel, (name, label) in zip(axes, labels.items(), strict=True):
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
    study = SUITES[suite]
    of_runs = numbers.per_run(runs, study.numbers)
    rows = arms.rows(of_runs, study.numbers, study.baseline)
    notes = [
        "Means over seeds with 95% t-intervals; in brackets the difference, paired by base and seed, to "
        f"{study.baseline}.",
        *(f"{column}: {numbers.meaning(name)}." for column, name in study.numbers.items()),
        f"The figure shows differences to {study.baseline} with 95% t-intervals; a filled point's interval excludes 0.",
    ]
    lowest = min((row for row in rows if row["statistic"] == "next-step gap"), key=lambda row: row["mean"])
    highest = max((row for row in rows if row["statistic"] == "pass@1"), key=lambda row: row["mean"])
    sentence = (
        f"The smallest next-step gap has {lowest['arm']} ({lowest['mean']:.4f}), the highest pass@1 {highest['arm']} "
        f"({highest['mean']:.3f}); means, not verdicts."
    )
    frame = pd.DataFrame([*rows, *of_runs])
    return Product(titled(study.title, runs), sentence, frame, arms.grids(rows), notes, draw(rows, study.drawn))


ARTIFACTS = tuple(
    Artifact(item.artifact, item.title, DIAGNOSTICS, (suite,), build, by_regime=True) for suite, item in SUITES.items()
)
