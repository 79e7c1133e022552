"""The rows of a map's runs."""

import numpy as np
import pandas as pd

from mcpo_cli.config import load
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.measures.frames import Runs
from mcpo_cli.report.numbers import WHOLE, of_run

from .design import Space

NAMES = {"pass@1": "scores.pass@1", "next-step gap": "mastery.gap"}
"""Column -> number (`numbers.py`)."""


def values(space: Space, points: int = 0) -> pd.DataFrame:
    """One row per run: point, arm, run id, the settings that the design varies, and the numbers of NAMES.

    points: only the first ones, as many as this; 0 for all.

    Raises:
        MissingRuns: a run is not done.
    """
    planned = [(point, PlannedRun(arm, load.load(overrides)[0])) for point, arm, overrides in space.runs(points)]
    runs = Runs(Plan("maps", "mcpo train SUITE", tuple(run for _, run in planned)))
    settings, rows = space.design.settings(), []
    for point, run in planned:
        numbers = {column: of_run(runs, run, name).get(WHOLE, np.nan) for column, name in NAMES.items()}
        seeds = {"base_seed": run.spec.seed_of_base, "seed": run.spec.seed}
        varied = {key: settings[point][key] for key in space.design.factors}
        rows.append({"point": point, "arm": run.arm, "run_id": run.spec.run_id, **seeds, **varied, **numbers})
    return pd.DataFrame(rows)
