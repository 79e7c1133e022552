"""The table of `why-reweight` on made-up runs with known learning curves, and so known speeds of the arms."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from mcpo_cli.config import plan as plans
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.runs.journal import write_atomic
from tests.errors import refused
from tests.fakes import build
from tests.rows import evaluation, journal

SPEED = {"reweight only": 0.6, "p > .5 halved": 1.3}
"""c of an arm: its curve at step t is the baseline's at c t."""


@pytest.fixture
def plan(mcpo_home: Path) -> Plan:
    return plans.from_suite("why-reweight", ["seed=0,1,2", "eval.every=20"], "mcpo reproduce why-reweight")


def write(cell: PlannedRun, right: int = 4) -> None:
    spec = cell.spec
    speed, problems = SPEED.get(cell.arm, 1.0) * (1 + 0.02 * (spec.seed - 1)), spec.eval.problems
    metrics = [
        {"train/accuracy": float(1 - np.exp(-speed * i / 12)), "weight/share_minority": 0.4}
        | {"weight/effective_sample": 900.0}
        | ({} if i else {"gradient/signal_to_noise": 0.5})
        for i in range(spec.train.steps)
    ]
    scores = [
        row
        for step, c in ((0, 0), (spec.train.steps, right))
        for row in evaluation(step, dict.fromkeys("abc", [c] * problems), spec.eval.samples)
    ]
    folder = journal(spec, {"eval": scores}, metrics).attempts()[0]
    write_atomic(folder / "provenance.json", json.dumps({"commit": "c0ffee", "dirty": False}))


def test_planted_speeds_and_scores_come_out(plan: Plan, mcpo_home: Path) -> None:
    for cell in plan.cells:
        write(cell, right=2 if cell.arm == "reweight only" else 4)
    built = build("why-reweight", plan, mcpo_home)
    rows = {row["arm"]: row for row in built.to_json()["rows"]}
    assert rows.keys() == {cell.arm for cell in plan.cells}
    for arm, row in rows.items():
        if arm == "DAPO w/o filter":
            assert (row["time_factor"], row["time_factor_low"]) == (1.0, None)
            continue
        # Baseline and arm of a seed are stretched alike, so the planted factor is met in each seed.
        assert row["time_factor"] == pytest.approx(SPEED.get(arm, 1.0), rel=0.01)
        assert row["time_factor_low"] <= row["time_factor"] <= row["time_factor_high"]
    assert rows["reweight only"]["pass_at_1_minus_baseline"] == pytest.approx(-2 / 8)
    assert rows["p > .5 halved"]["pass_at_1_minus_baseline"] == pytest.approx(0)
    assert rows["reweight only"]["signal_to_noise"] == 0.5
    with built.paths[0].open() as file:
        saved = list(csv.DictReader(file))
    assert [row["arm"] for row in saved] == list(rows)
    assert sum(len(row["run_ids"].split()) for row in saved) == len(plan.cells)
    before = [path.read_bytes() for path in built.paths]
    again = build("why-reweight", plan, mcpo_home)
    assert [path.read_bytes() for path in again.paths] == before


def test_seeds_are_paired_within_their_base_policy(mcpo_home: Path) -> None:
    """The loss of `reweight only` depends on the base policy: 2 of 8 samples on the first, 1 on the second."""
    words = ["base_seed=0,1", "seed=0,1", "eval.every=20"]
    plan = plans.from_suite("why-reweight", words, "mcpo reproduce why-reweight")
    for cell in plan.cells:
        write(cell, right=2 + cell.spec.seed_of_base if cell.arm == "reweight only" else 4)
    rows = {row["arm"]: row for row in build("why-reweight", plan, mcpo_home).to_json()["rows"]}
    row = rows["reweight only"]
    assert row["seeds"] == 4
    loss = stats.ttest_1samp([-2 / 8, -2 / 8, -1 / 8, -1 / 8], 0).confidence_interval(0.95)
    assert row["pass_at_1_minus_baseline"] == pytest.approx(-1.5 / 8)
    assert row["pass_at_1_minus_baseline_low"] == pytest.approx(loss.low)
    assert row["time_factor"] == pytest.approx(SPEED["reweight only"], rel=0.01)


def test_a_run_that_is_not_done_is_an_error_that_names_it(plan: Plan, mcpo_home: Path) -> None:
    for cell in plan.cells[1:]:
        write(cell)
    with refused("missing_runs", plan.cells[0].spec.run_id):
        build("why-reweight", plan, mcpo_home)
