"""Made-up evaluations of runs, whose scores a test sets by hand."""

from collections.abc import Callable, Sequence

import pandas as pd
import pytest

from mcpo_cli.config.plan import PlannedRun
from mcpo_cli.measures.frames import Runs

SAMPLES = 1000
"""Samples of a problem, so that a score in thousandths is exact."""
Point = tuple[int, float, dict[str, float]]
"""Step, rollouts until then, and the score by tier."""


def evaluated(runs: Runs, patch: pytest.MonkeyPatch, points: Callable[[PlannedRun], Sequence[Point]]) -> None:
    """Give every run these evaluations, of two problems a tier, one .1 above and one .1 below the score."""
    rows, costs = [], []
    for run in runs.planned:
        spec = run.spec
        about = {"arm": run.arm, "method": "", "regime": spec.regime, "model": spec.model.name}
        about |= {"base_seed": spec.seed_of_base, "seed": spec.seed, "run_id": spec.run_id}
        for step, rollouts, scores in points(run):
            costs.append({"run_id": spec.run_id, "step": step, "cost/rollouts": rollouts})
            for tier, score in scores.items():
                for problem, shift in (("easy", 0.1), ("hard", -0.1)):
                    correct = round(SAMPLES * (score + shift))
                    rows.append({**about, "step": step, "tier": tier, "problem": problem, "n": SAMPLES, "c": correct})
    patch.setattr(Runs, "eval", lambda self, step="last": pd.DataFrame(rows))
    patch.setattr(Runs, "steps", lambda self: pd.DataFrame(costs))
