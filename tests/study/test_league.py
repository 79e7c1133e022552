"""The league of methods and the claims of their papers, on journals with numbers computed by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcpo_study.analysis import EXPERIMENTS
from mcpo_study.analysis.methods import league

from mcpo_cli.analysis import claims, frames, verdicts
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.numbers import WHOLE, of_run
from mcpo_cli.compare.runs import of_runs
from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.home import run_dir
from mcpo_cli.records import EvalRow, MiniBatchRow
from mcpo_cli.runs.attempts import Attempt
from tests import fakes

SMALL = [
    "scale=smoke",
    "seed=0,1,2",
    "train.steps=4",
    "eval.every=2",
    "train.prompts=4",
    "train.mini_batch=4",
    "eval.samples=1000",
]


def plan_of(suite: str) -> Plan:
    return from_suite(suite, SMALL, f"mcpo reproduce {suite}")


def write(plan: Plan, right: Mapping[str, Sequence[int]], metrics: Mapping[str, Mapping[str, Sequence[float]]]) -> Runs:
    """Runs with one problem of 1000 samples per tier; right: correct samples by arm at steps 0, 2, 4, plus the seed."""
    for cell in plan.cells:
        spec, own = cell.spec, metrics.get(cell.arm, {})
        attempt = Attempt(run_dir(spec.run_id), spec, start_step=0)
        for step in range(5):
            if step:
                attempt.journal.rows("groups", step, fakes._groups(spec, step, np.random.default_rng(0)))
                values = {"cost/rollouts": 4.0 * step * spec.train.rollouts}
                values |= {name: series[step - 1] for name, series in own.items()}
                norm = values.pop("train/grad_norm", 0.5)
                attempt.journal.rows("mini_batches", step, [updated(step, 1, norm), updated(step, 2, norm / 8)])
                attempt.journal.step({"step": step, "time": 0.0, "metrics": values})
            if step % 2 == 0:
                counts = right.get(cell.arm, (100, 200, 300))
                attempt.journal.rows("eval", step, evaluated(spec, step, counts[step // 2] + spec.seed))
        attempt.end("done")
    return Runs(plan)


def updated(step: int, number: int, norm: float) -> MiniBatchRow:
    return MiniBatchRow(step=step, mini_batch=number, sums={"train/grad_norm": [norm, 1.0]})


def evaluated(spec: Any, step: int, c: int) -> list[EvalRow]:
    sizes = spec.task.tier_sizes(spec.eval.problems)
    return [
        EvalRow(step=step, tier=tier, problem=f"{tier} {i}", n=1000, c=c + 10 * place)
        for place, (tier, size) in enumerate(sizes.items())
        for i in range(size)
    ]


def measured(name: str, runs: Runs, arm: str, seed: int = 0) -> float:
    cell = next(cell for cell in runs.cells if (cell.arm, cell.spec.seed) == (arm, seed))
    return of_run(runs, cell, name)[WHOLE]


def rows_of(suite: str, runs: Runs) -> dict[str, Any]:
    return {row["arm"]: row for row in league._rows(suite, runs, of_runs(runs, league.QUESTION))}


@pytest.fixture
def zero_variance(mcpo_home: Path) -> Runs:
    """DAPO samples twice as many prompts in its first two steps."""
    metrics = {
        "DAPO": {"cost/rollouts": (32.0, 64.0, 80.0, 96.0)},
    }
    return write(plan_of("methods-zero-variance"), {"DAPO": (100, 300, 500)}, metrics)


def test_scores_at_equal_rollouts(zero_variance: Runs) -> None:
    """GRPO ends after 16 prompts; DAPO has sampled 16 after two steps, at its second evaluation."""
    tiers = len(zero_variance.cells[0].spec.task.tier_sizes(1))
    offset = 0.005 * (tiers - 1)
    assert measured("scores.pass@1 at equal rollouts", zero_variance, "GRPO") == pytest.approx(0.3 + offset)
    assert measured("scores.pass@1 at equal rollouts", zero_variance, "DAPO", seed=2) == pytest.approx(0.302 + offset)
    assert measured("scores.pass@1 at equal steps", zero_variance, "GRPO") == pytest.approx(0.3 + offset)
    assert measured("scores.pass@1 at equal steps", zero_variance, "DAPO", seed=2) == pytest.approx(0.502 + offset)
    assert measured("methods.hardest pass@1", zero_variance, "DAPO") == pytest.approx(0.5 + 0.01 * (tiers - 1))
    assert measured("methods.best@8 over pass@1", zero_variance, "DAPO") > 0


def test_the_league_compares_with_the_first_arm(zero_variance: Runs) -> None:
    rows = rows_of("methods-zero-variance", zero_variance)
    assert rows["DAPO"]["steps"] == pytest.approx(0.2)
    assert rows["DAPO"]["rollouts"] == pytest.approx(0)
    assert rows["DAPO"]["better"] == rows["RL-ZVP"]["better"] == 0.5
    assert next(iter(rows)) == max(rows.values(), key=lambda row: row["iqm"])["arm"]
    assert rows["RL-ZVP"]["norm"] == 1
    assert not {"better", "rollouts", "steps"} & rows["GRPO"].keys()
    assert all(row["cut"] == 0 for row in rows.values())
    # DAPO is at .300 when it has sampled as much as GRPO does in all, and at .100 before training.
    assert rows["DAPO"]["since"] == rows["GRPO"]["since"] == pytest.approx(0.2)
    assert {row["mark"] for row in rows.values()} == {""}
    assert rows["GRPO"]["before"] == pytest.approx(
        measured("methods.hardest pass@1", zero_variance, "GRPO") - 0.2, abs=0.02
    )


@pytest.mark.slow
def test_controls_warn_where_coins_gain_and_twins_differ(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of("methods-weights")
    quiet = {"GRPO, random reward": (100, 100, 99)}
    found = write(plan, {**quiet, "RLOO": (100, 300, 400)}, {"RLOO": {"train/grad_norm": (2.0, 2.0, 2.0, 2.0)}})
    assert not list(league._coins("methods-weights", found))
    (warning,) = league._twins("methods-weights", of_runs(found, league.QUESTION))
    assert warning.startswith("WARNING: RLOO and Dr. GRPO differ by +0.100")
    rows = rows_of("methods-weights", found)
    assert (rows["RLOO"]["norm"], rows["RLOO"]["cut"]) == (4, 0.5)
    # The same if runs differ by base policies rather than seeds.
    about = frames._run_columns
    monkeypatch.setattr(frames, "_run_columns", lambda cell: about(cell) | {"seed": 0})
    assert list(league._twins("methods-weights", of_runs(Runs(plan), league.QUESTION))) == [warning]


@pytest.mark.slow
def test_the_whole_league_and_its_claims_are_built(mcpo_home: Path) -> None:
    data = {suite: write(plan_of(suite), {}, {}) for suite in league.SUITES}
    product = league.ARTIFACT.build(data)
    assert [grid.title.partition(",")[0] for grid in product.grids] == ["At a glance", *league.SUITES]
    assert len(product.data) == sum(len({cell.arm for cell in runs.cells}) for runs in data.values())
    assert "0 have a higher pass@1" in product.sentence
    assert "2 negative controls warn" in product.sentence
    assert any(note.startswith("WARNING: GRPO, random reward gains 0.200") for note in product.notes)
    assert product.figure is not None
    tests = verdicts.outcomes(claims.read(EXPERIMENTS / "methods" / "method-claims.yaml"), data)
    assert {test.verdict for test in tests if test.claim.statistic.startswith("scores.pass@1")} != {"not testable"}


def test_the_claims_of_methods_are_about_suites_of_the_league() -> None:
    declared = claims.read(EXPERIMENTS / "methods" / "method-claims.yaml")
    assert {one.suite for one in declared} <= set(league.SUITES)
    assert all(one.reads or one.quote or "Table" in one.where for one in declared)


def test_signs_of_advantages() -> None:
    import torch

    from mcpo_cli.backends import measure

    correct_PG = torch.tensor([[True, False, False, True]])
    found = measure.signs(correct_PG, torch.tensor([[1.0, 0.0, 0.5, -0.1]]), torch.tensor([4]))
    assert found == {"advantage/zero": 0.25, "advantage/flipped": 0.5}


def test_arms_that_end_below_their_base_policies_are_marked_and_counted(mcpo_home: Path) -> None:
    plan = plan_of("methods-zero-variance")
    ends = {cell.arm: (300, 300, 400) for cell in plan.cells} | {"GRPO": (300, 200, 100), "DAPO": (300, 280, 260)}
    found = write(plan, ends, {})
    compared = of_runs(found, league.QUESTION)
    rows = list(rows_of("methods-zero-variance", found).values())
    grid = league._grid("methods-zero-variance", compared, rows)
    assert {row[0] for row in grid.rows if "<" in row[0]} == {"GRPO <", "DAPO <"}
    assert f"2 of all {len(rows)} arms end below their base policies" in league._sentence(rows, [])
