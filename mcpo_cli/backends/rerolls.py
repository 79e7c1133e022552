"""Prompts that a run rolls again to see what became of them, the same for every backend; nothing of it is trained on.

Cohorts: prompts mastered in the batch of one step, rolled again under the same policy (the control) and under later
ones. The panel: the same prompts every few steps. All rolls of a step happen under the policy that samples its batch,
before the update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Problem
from mcpo_cli.records import RerollRow
from mcpo_cli.runs.journal import Journal

if TYPE_CHECKING:
    from mcpo_cli.backends.measure import Graded


@dataclass(frozen=True)
class Roll:
    """A prompt to be rolled again. origin: the step that it was mastered in; 0 for the panel."""

    problem: Problem
    source: Literal["mastered", "panel"]
    origin: int


class Rerolls:
    """Which prompts of a run are due at which step.

    Args:
        journal: of the run; cohorts that an earlier attempt picked are read from it.
        step: the last step that is done.
        panel: the prompts of the panel.
    """

    def __init__(self, spec: RunSpec, journal: Journal, step: int, panel: Sequence[Problem]) -> None:
        self.spec = spec
        self._panel = [Roll(problem, "panel", 0) for problem in panel]
        self._controls: dict[int, list[RerollRow]] = {}
        for row in journal.rerolls():
            if row["source"] == "mastered" and row["origin"] == row["step"] <= step:
                self._controls.setdefault(row["origin"], []).append(row)

    def due(self, step: int, graded: Graded) -> list[Roll]:
        """What to roll under the policy that sampled `graded`, the groups of `step` before any filter."""
        probe, rolls = self.spec.probe, list[Roll]()
        for lag in probe.lags[1:]:
            for row in self._controls.get(step - lag, []):
                rolls.append(Roll(Problem(row["prompt"], row["gold"]), "mastered", row["origin"]))
        if probe.every and step % probe.every == 0:
            mastered_P = graded.correct_PG.all(-1).tolist()
            picked = [problem for problem, mastered in zip(graded.problems, mastered_P, strict=True) if mastered]
            rolls += [Roll(problem, "mastered", step) for problem in picked[: probe.prompts]]
        # The first step is on the panel: it shows the base policy.
        return rolls + (self._panel if probe.panel_every and (step - 1) % probe.panel_every == 0 else [])

    def record(
        self, step: int, rolls: Sequence[Roll], n_P: Sequence[int], c_P: Sequence[int]
    ) -> tuple[list[RerollRow], dict[str, float]]:
        """What came of `due`: its rows, and the step's metrics.

        Args:
            n_P, c_P: of each roll the rollouts, and the right ones among them.

        Returns:
            Rows, and `probe/accuracy_lag_<l>` (of the cohort that is `l` steps old), `probe/gap_lag_<l>` (the same
            cohort's control minus that), `probe/panel_accuracy`, `probe/panel_mastered`, `probe/rollouts`.
        """
        rows = [
            RerollRow(
                step=step,
                source=roll.source,
                origin=roll.origin,
                prompt=roll.problem.text,
                gold=roll.problem.gold,
                n=n,
                c=c,
            )
            for roll, n, c in zip(rolls, n_P, c_P, strict=True)
        ]
        self._controls[step] = [row for row in rows if row["source"] == "mastered" and row["origin"] == step]
        metrics = {"probe/rollouts": float(sum(n_P))}
        for lag in self.spec.probe.lags:
            cohort = [row for row in rows if row["source"] == "mastered" and row["origin"] == step - lag]
            if sum(row["n"] for row in cohort):
                metrics[f"probe/accuracy_lag_{lag}"] = _accuracy(cohort)
                if lag:
                    metrics[f"probe/gap_lag_{lag}"] = _accuracy(self._controls[step - lag]) - _accuracy(cohort)
        if panel := [row for row in rows if row["source"] == "panel" and row["n"]]:
            metrics["probe/panel_accuracy"] = _accuracy(panel)
            metrics["probe/panel_mastered"] = sum(row["c"] == row["n"] for row in panel) / len(panel)
        return rows, metrics


def _accuracy(rows: Sequence[RerollRow]) -> float:
    """Over all rollouts; prompts have as many each but where answers could not be graded."""
    return sum(row["c"] for row in rows) / sum(row["n"] for row in rows)
