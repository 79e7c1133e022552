"""The table of sampled rollouts: its groups and their form."""

from pathlib import Path

import pytest

from mcpo_cli.analysis import artifacts
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.home import run_dir
from mcpo_cli.runs.attempts import Attempt
from tests.fakes import write_runs


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("MCPO_HOME", str(tmp_path))
    found = from_suite("table1", ["scale=smoke", "model=toy-s", "seed=0,1"], "")
    write_runs(found)
    return found


def keep(plan: Plan, arm: str, seed: int, groups: dict[str, dict[str, bool]]) -> None:
    """Write rollouts of step 3 as a second attempt does; by prompt, the responses and whether they are correct."""
    (spec,) = (cell.spec for cell in plan.cells if (cell.arm, cell.spec.seed) == (arm, seed))
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


def test_runs_without_rollouts_say_so(plan: Plan) -> None:
    product = artifacts.registry()["rollouts"].build({"table1": Runs(plan)})
    assert product.sentence == "No run kept rollouts of a prompt with correct and with incorrect responses."
    assert not product.grids
