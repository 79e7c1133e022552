"""Prompts that a run resamples as a probe, the same for every backend; these rollouts are never trained on.

A cohort is the prompts mastered in one step's batch, resampled under the same policy (the control) and under later
policies. The panel is a fixed set of prompts, sampled every few steps. All resampling of a step uses the policy that
sampled its batch, before the update.
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
    from mcpo_cli.backends.graded import Graded


@dataclass(frozen=True)
class ResampledPrompt:
    """A prompt to resample."""

    problem: Problem
    source: Literal["mastered", "panel"]
    origin: int
    """The step in which it was mastered; 0 for the panel."""


class Resampler:
    """Decides which prompts to resample at each step.

    Args:
        journal: the run's journal, for the cohorts picked by earlier attempts.
        step: the last completed step.
        panel: the prompts of the panel.
    """

    def __init__(self, spec: RunSpec, journal: Journal, step: int, panel: Sequence[Problem]) -> None:
        self.spec = spec
        self._panel = [ResampledPrompt(problem, "panel", 0) for problem in panel]
        self._controls: dict[int, list[RerollRow]] = {}
        for row in journal.rerolls():
            if row["source"] == "mastered" and row["origin"] == row["step"] <= step:
                self._controls.setdefault(row["origin"], []).append(row)

    def due(self, step: int, graded: Graded) -> list[ResampledPrompt]:
        """The prompts to sample under the policy that sampled `graded`, the groups of `step` before any filter."""
        probe, prompts = self.spec.probe, list[ResampledPrompt]()
        for lag in probe.lags[1:]:
            for row in self._controls.get(step - lag, []):
                prompts.append(ResampledPrompt(Problem(row["prompt"], row["gold"]), "mastered", row["origin"]))
        if probe.every and step % probe.every == 0:
            mastered_P = graded.mastered_P.tolist()
            problems = [problem for problem, flag in zip(graded.problems, mastered_P, strict=True) if flag]
            prompts += [ResampledPrompt(problem, "mastered", step) for problem in problems[: probe.prompts]]
        # The panel starts at step 1, which shows the base policy.
        return prompts + (self._panel if probe.panel_every and (step - 1) % probe.panel_every == 0 else [])

    def record(
        self, step: int, prompts: Sequence[ResampledPrompt], n_P: Sequence[int], c_P: Sequence[int]
    ) -> tuple[list[RerollRow], dict[str, float]]:
        """The rows and metrics of the prompts that `due` returned.

        Args:
            n_P, c_P: the graded and the correct rollouts of each prompt; a prompt without graded ones has no row.

        Returns:
            Rows, and `probe/accuracy_lag_<l>` (of the cohort that is `l` steps old), `probe/gap_lag_<l>` (that cohort's
            control accuracy minus this accuracy), `probe/panel_accuracy`, `probe/panel_mastered`, `probe/rollouts`.
        """
        rows = [
            RerollRow(
                step=step,
                source=prompt.source,
                origin=prompt.origin,
                prompt=prompt.problem.text,
                gold=prompt.problem.gold,
                n=n,
                c=c,
            )
            for prompt, n, c in zip(prompts, n_P, c_P, strict=True)
            if n
        ]
        self._controls[step] = [row for row in rows if row["source"] == "mastered" and row["origin"] == step]
        metrics = {"probe/rollouts": float(sum(n_P))}
        for lag in self.spec.probe.lags:
            cohort = [row for row in rows if row["source"] == "mastered" and row["origin"] == step - lag]
            if cohort and self._controls.get(step - lag):
                metrics[f"probe/accuracy_lag_{lag}"] = _accuracy(cohort)
                if lag:
                    metrics[f"probe/gap_lag_{lag}"] = _accuracy(self._controls[step - lag]) - _accuracy(cohort)
        if panel := [row for row in rows if row["source"] == "panel"]:
            metrics["probe/panel_accuracy"] = _accuracy(panel)
            metrics["probe/panel_mastered"] = sum(row["c"] == row["n"] for row in panel) / len(panel)
        return rows, metrics


def _accuracy(rows: Sequence[RerollRow]) -> float:
    """Accuracy over all rollouts; prompts have equally many unless some could not be graded."""
    return sum(row["c"] for row in rows) / sum(row["n"] for row in rows)
