"""Frames hold what the journals hold, with pinned types, and never leave a gap."""

import json
import math
from pathlib import Path

import pytest

from mcpo_cli.analysis import frames
from mcpo_cli.errors import MissingCells
from mcpo_cli.plan import Plan, from_suite
from tests.fakes import TIERS, write_run, write_runs


@pytest.fixture
def plan(mcpo_home: Path) -> Plan:
    return from_suite("table1", ["scale=smoke", "model=toy-s", "seed=0,1"], "mcpo reproduce table1")


def _rows(home: Path, run_id: str, kind: str, step: int) -> list[dict[str, object]]:
    path = home / "runs" / run_id / "attempt_1" / kind / f"step_{step:06d}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_eval_frame_holds_the_last_evaluation(plan: Plan, mcpo_home: Path) -> None:
    write_runs(plan)
    frame = frames.eval_frame(plan)
    assert frame.dtypes.astype(str).to_dict() == frames.EVAL
    assert set(frame["step"]) == {3}
    assert frame["tier"].unique().tolist() == list(TIERS)
    for cell in plan.cells:
        mine = frame[frame["run_id"] == cell.spec.run_id]
        assert mine[["arm", "method", "model", "seed"]].drop_duplicates().values.tolist() == [
            [cell.arm, cell.spec.method.name, "toy-s", cell.spec.seed]
        ]
        rows = _rows(mcpo_home, cell.spec.run_id, "eval", 3)
        assert mine[["step", "tier", "problem", "n", "c"]].to_dict("records") == rows


def test_all_evaluations_on_demand(plan: Plan) -> None:
    write_runs(plan)
    frame = frames.eval_frame(plan, step="all")
    assert frame.groupby("step").size().to_dict() == dict.fromkeys([0, 2, 3], len(plan.cells) * 3 * 6)


def test_steps_frame_has_a_column_a_metric_and_nan_where_undefined(plan: Plan) -> None:
    write_runs(plan)
    frame = frames.steps_frame(plan)
    metrics = ["hinge/penalty", "mastery/all_wrong", "mastery/mastered", "train/accuracy", "train/entropy"]
    assert frame.columns.tolist() == [*frames.RUN, "step", *metrics]
    assert all(frame[name].dtype == "float64" for name in metrics)
    assert frame["step"].tolist() == [1, 2, 3] * len(plan.cells)
    assert frame["train/entropy"].tolist() == [1, 1 / 2, 1 / 3] * len(plan.cells)
    assert frame.loc[frame["method"] == "dapo", "hinge/penalty"].isna().all()
    penalty = frame.loc[(frame["method"] == "mcpo") & (frame["seed"] == 0), "hinge/penalty"].tolist()
    assert penalty == pytest.approx([math.nan, 0.25, math.nan], nan_ok=True)


def test_groups_frame_holds_every_group(plan: Plan, mcpo_home: Path) -> None:
    write_runs(plan)
    frame = frames.groups_frame(plan)
    assert frame.dtypes.astype(str).to_dict() == frames.GROUPS
    run_id = plan.cells[0].spec.run_id
    rows = [row for step in (1, 2, 3) for row in _rows(mcpo_home, run_id, "groups", step)]
    mine = frame[frame["run_id"] == run_id]
    columns = ["step", "prompt", "p", "mean_length", "kept"]
    assert mine[columns].to_dict("records") == [{name: row[name] for name in columns} for row in rows]


@pytest.mark.parametrize("build", [frames.eval_frame, frames.steps_frame, frames.groups_frame])
def test_a_plan_that_was_not_run_is_an_error_with_the_command(build, plan: Plan) -> None:
    with pytest.raises(MissingCells) as caught:
        build(plan)
    message = str(caught.value)
    assert "4 of 4 runs are not done" in message
    assert f"DAPO, toy-s, seed 1 ({plan.cells[1].spec.run_id}): planned" in message
    assert "fix: mcpo reproduce table1 scale=smoke model=toy-s seed=0,1" in message


def test_a_lost_evaluation_is_named(plan: Plan, mcpo_home: Path) -> None:
    write_runs(plan)
    broken = plan.cells[2].spec.run_id
    (mcpo_home / "runs" / broken / "attempt_1" / "eval" / "step_000003.jsonl").unlink()
    with pytest.raises(MissingCells) as caught:
        frames.eval_frame(plan)
    assert "1 of 4 runs are not done" in caught.value.message
    assert f"MCPO, toy-s, seed 0 ({broken}): failed; evaluation at step 3: 0 of 18 problems" in caught.value.message


@pytest.mark.parametrize(("dirty", "expected"), [(True, "dirty"), (False, "clean"), (None, "unknown")])
def test_tree_of_a_run(plan: Plan, dirty: bool | None, expected: str) -> None:
    spec = plan.cells[0].spec
    write_run(spec, dirty)
    assert frames.tree(spec.run_id) == expected


def test_one_dirty_attempt_makes_the_run_dirty(plan: Plan) -> None:
    spec = plan.cells[0].spec
    for dirty in (None, True, False):
        write_run(spec, dirty)
    assert frames.tree(spec.run_id) == "dirty"
