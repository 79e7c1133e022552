"""The table of outcomes: means and paired differences of the rows of its runs."""

import pandas as pd
import pytest
from scipy import stats

from analysis.tables import outcomes
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.config.plan import from_suite
from tests.fakes import write_runs

SMALL = {
    "smollm2-runs": ("eval.problems=4", "eval.every_rollouts=0", "seed=1,2,3"),
    "opposite-weights": ("eval.problems=4", "base_seed=3", "seed=2,3,4"),
}


@pytest.mark.parametrize("suite", SMALL)
@pytest.mark.usefixtures("mcpo_home")
def test_differences_are_paired_means_of_the_rows_of_runs(suite: str) -> None:
    plan = from_suite(suite, SMALL[suite], "")
    write_runs(plan, probed=True)
    shown = outcomes.SUITES[suite]
    frame = outcomes.build({suite: Runs(plan)}).data
    runs, measured = frame[frame["block"] == "run"], frame[frame["block"] == "measured"]
    assert sorted(runs["run_id"]) == sorted(cell.spec.run_id for cell in plan.cells)
    arms = list(runs["arm"].unique())
    assert {*measured["statistic"]} >= {*shown.drawn}
    for name in shown.drawn:
        value = runs.pivot(index=["base_seed", "seed"], columns="arm", values=name)
        for arm in arms:
            (row,) = measured[(measured["arm"] == arm) & (measured["statistic"] == name)].to_dict("records")
            assert row["mean"] == pytest.approx(value[arm].mean())
            if arm == shown.baseline:
                assert pd.isna(row["difference"])
                continue
            paired = value[arm] - value[shown.baseline]
            half = stats.t.ppf(0.975, 2) * paired.sem()
            found = [row["difference"], row["difference_high"] - row["difference"]]
            assert found == pytest.approx([paired.mean(), half], abs=1e-9)
