"""Statistics of an arm at its own best learning rate, on journals with scores written by hand."""

from pathlib import Path

import numpy as np
import pytest

from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.measures import STATISTICS
from mcpo_cli.analysis.run_numbers import WHOLE
from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.home import run_dir
from mcpo_cli.records import EvalRow
from mcpo_cli.runs.attempts import Attempt
from tests import fakes

LOW, HIGH = 1e-4, 1e-3
SMALL = ["scale=smoke", "train.steps=1", "train.prompts=4", "train.mini_batch=4", "eval.samples=100"]
SUITE = f"""
arms:
  plain: [method=grpo]
  MCPO: [method=mcpo]
sweep:
  base_seed: [0, 1, 2]
  seed: [7]
design:
  points: 2
  factors:
    train.lr: {{levels: [{LOW}, {HIGH}]}}
"""
RIGHT = {
    ("plain", LOW): (90, 20, 20),
    ("plain", HIGH): (50, 40, 40),
    ("MCPO", LOW): (10, 10, 10),
    ("MCPO", HIGH): (60, 61, 62),
}
"""Correct answers of 100 in each tier, by base policy."""


@pytest.fixture
def plan(tmp_path: Path, mcpo_home: Path) -> Plan:
    path = tmp_path / "rates.yaml"
    path.write_text(SUITE)
    plan = from_suite(str(path), SMALL, "mcpo")
    for cell in plan.cells:
        spec, attempt = cell.spec, Attempt(run_dir(cell.spec.run_id), cell.spec, start_step=0)
        right = RIGHT[cell.arm, spec.train.lr][spec.seed_of_base]
        sizes = spec.task.tier_sizes(spec.eval.problems)
        problems = [(tier, f"{tier} {i}") for tier, size in sizes.items() for i in range(size)]
        attempt.journal.rows("groups", 1, fakes._groups(spec, 1, np.random.default_rng(0)))
        attempt.journal.step({"step": 1, "time": 0.0, "metrics": {}})
        for step in (0, 1):
            rows = [EvalRow(step=step, tier=tier, problem=name, n=100, c=right) for tier, name in problems]
            attempt.journal.rows("eval", step, rows)
        attempt.end("done")
    return plan


def numbers(statistic: str, runs: Runs, arm: str) -> dict[int, list[object]]:
    """By base policy, the numbers of the arm's runs that have one."""
    found: dict[int, list[object]] = {}
    for cell in runs.cells:
        if cell.arm == arm:
            own = STATISTICS[statistic].measure(runs, cell)
            found.setdefault(cell.spec.seed_of_base, []).extend([pytest.approx(own[WHOLE])] if own else [])
    return found


def test_the_other_base_policies_choose_the_rate(plan: Plan) -> None:
    """Policies 1 and 2 choose HIGH for policy 0 (.4 over .2), which scores .9 at LOW; with it they choose LOW."""
    runs = Runs(plan)
    assert numbers("best learning rate", runs, "plain") == {0: [HIGH], 1: [LOW], 2: [LOW]}
    assert numbers("pass@1 at its best rate", runs, "plain") == {0: [0.5], 1: [0.2], 2: [0.2]}


def test_each_arm_has_its_own_rate(plan: Plan) -> None:
    assert numbers("best learning rate", Runs(plan), "MCPO") == {0: [HIGH], 1: [HIGH], 2: [HIGH]}
    assert numbers("pass@1 at its best rate", Runs(plan), "MCPO") == {0: [0.6], 1: [0.61], 2: [0.62]}


def test_one_base_policy_has_no_best_rate(plan: Plan, tmp_path: Path) -> None:
    one = from_suite(str(tmp_path / "rates.yaml"), [*SMALL, "base_seed=0"], "")
    assert numbers("pass@1 at its best rate", Runs(one), "plain") == {0: []}
