"""Tables of the study: outcomes with paired differences, and sampled rollouts."""

from pathlib import Path

import pandas as pd
import pytest
from mcpo_study.analysis.outcomes import tables as outcomes
from scipy import stats

from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.home import run_dir
from mcpo_cli.measures.frames import Runs
from mcpo_cli.report import artifacts
from mcpo_cli.runs.attempts import Attempt
from tests.fakes import table1, write_runs

SMALL = {
    "smollm2-runs": ("eval.problems=4", "eval.every_rollouts=0", "seed=1,2,3"),
    "opposite-weights": (
        *("eval.problems=4", "base_seed=3", "seed=2,3,4"),
        *("train.steps=40", "train.prompts=32", "train.mini_batch=16"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("suite", SMALL)
@pytest.mark.usefixtures("mcpo_home")
def test_differences_are_paired_means_of_the_rows_of_runs(suite: str) -> None:
    plan = from_suite(suite, SMALL[suite], "")
    write_runs(plan, probed=True)
    shown = outcomes.SUITES[suite]
    frame = outcomes.build({suite: Runs(plan)}).data
    runs, measured = frame[frame["block"] == "run"], frame[frame["block"] == "measured"]
    assert sorted(runs["run_id"]) == sorted(run.spec.run_id for run in plan.runs)
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


@pytest.fixture
def plan(mcpo_home: Path) -> Plan:
    return table1("seed=0,1")


def keep(plan: Plan, arm: str, seed: int, groups: dict[str, dict[str, bool]]) -> None:
    """Write rollouts of step 3 as a second attempt does; by prompt, the responses and whether they are correct."""
    (spec,) = (run.spec for run in plan.runs if (run.arm, run.spec.seed) == (arm, seed))
    attempt = Attempt(run_dir(spec.run_id), spec, start_step=spec.train.steps)
    rows = [
        {"step": 3, "prompt": prompt, "gold": "7", "response": response[1:], "correct": correct}
        for prompt, responses in groups.items()
        for response, correct in responses.items()
    ]
    attempt.journal.rows("samples", 3, rows)
    attempt.end("done")


def test_each_arm_shows_groups_with_right_and_wrong_responses_of_its_first_run_that_has_any(plan: Plan) -> None:
    # The first letter of a response only distinguishes equal ones.
    mixed = {"aseven": True, "beight": False, "ceight": False, "dnine": False, "e6": False, "f5": False}
    keep(plan, "DAPO", 0, {"all right": {"aseven": True}})
    keep(plan, "DAPO", 1, {"mixed": mixed})
    product = artifacts.registry()["rollouts"].build({"table1": Runs(plan)})
    assert product.sentence == "6 rollouts of 1 prompts, 1 of them correct."
    (grid,) = product.grids
    (row,) = grid.rows
    assert row[:6] == ["DAPO", "toy-s", "1", "3", "mixed", "7"]
    assert row[6:] == ["1 x seven", "2 x eight\n1 x nine\n1 x 6\nand 1 more"]
    assert product.data["verdict"].tolist() == ["right", *["wrong"] * 5]
