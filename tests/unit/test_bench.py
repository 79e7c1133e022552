"""The benchmark measures what it says: the engine's own step on the named work, and a count made by hand."""

import dataclasses

import pytest
import torch

from mcpo_cli.backends.local.sampler import Rollouts
from mcpo_cli.grading import Pool
from mcpo_cli.runs.journal import Journal
from tests.bench import engine, flops, grading, growth, workload


def test_local_engine_does_the_named_work() -> None:
    spec = workload.spec("method=mcpo")
    local = engine.LocalEngine(spec, engine.quarters)
    before = [parameter.detach().clone() for parameter in local.policy.parameters()]

    assert local.seconds() > 0
    assert local.needed > 0

    journal = Journal(local.attempt.folder.parent)
    rows = journal.groups()
    assert len(rows) == 128
    assert {row["mean_length"] for row in rows} == {16.0}
    assert sum(row["p"] == 1 for row in rows) == sum(row["p"] == 0 for row in rows) == 32
    (step,) = journal.steps()
    assert step["metrics"]["train/entropy"] > 1
    assert any((old != new).any() for old, new in zip(before, local.policy.parameters(), strict=True))
    assert int(next(iter(local.updater.optimizer.state.values()))["step"]) == 2


def test_flop_count_equals_a_count_by_hand() -> None:
    spec = workload.spec("method=mcpo")
    sizes = dataclasses.replace(spec.model, hidden=8, layers=1, heads=1, head_dim=4, mlp=6)
    small = dataclasses.replace(spec, model=sizes)
    model, tokenizer = workload.fresh_model(small)
    # One prompt of 5 tokens; two responses of 3 tokens begin alike, a third has one token, which predicts nothing.
    token_PGT, length_PG = torch.tensor([[[7, 8, 9], [7, 6, 9], [5, 0, 0]]]), torch.tensor([[3, 3, 1]])
    nothing_PGT = torch.zeros(1, 3, 3)
    both = Rollouts(torch.ones(1, 5, dtype=torch.int64), token_PGT, length_PG, length_PG > 0, nothing_PGT, nothing_PGT)

    # Beginnings: 7, 7 8 and 7 6. With the prompt's 5 these are 8 rows, 1 + 3 of them with an output.
    weights = 4 * 8 * 4 + 3 * 8 * 6
    # Prompt tokens see 1 + .. + 5 tokens; 7 sees 6, the two after it see 7.
    pairs = 15 + 6 + 7 + 7
    forward = 2 * weights * 8 + 2 * len(tokenizer) * 8 * 4 + 4 * 1 * 1 * 4 * pairs
    assert flops.forward(small, model, both) == forward
    assert flops.global_step(small, model, both, both) == 4 * forward


def test_graded_answers_are_what_they_are_labelled() -> None:
    items = [*grading.made(grading.latex, 12, seed=3), *grading.made(grading.integer, 4, seed=3)]
    assert len(items) == 16 * grading.SAMPLES
    assert {right for *_, right in items} == {True, False}
    with Pool(workers=1) as pool:
        verdicts = pool.grade([(gold, response) for gold, response, _ in items])
    assert [verdict.status for verdict in verdicts] == ["correct" if right else "wrong" for *_, right in items]
    assert grading.serial([(gold, response) for gold, response, _ in items[:2]]) > 0


def test_growth_is_the_line_through_the_times() -> None:
    line = growth.fitted({20: 5.0, 100: 13.0, 300: 33.0})
    assert line == pytest.approx({"seconds_per_run": 0.1, "seconds_without_runs": 3.0, "curvature": 1.0})
    # Cost n^2: 30 a run between 10 and 20 runs, 60 between 20 and 40.
    assert growth.fitted({10: 100.0, 20: 400.0, 40: 1600.0})["curvature"] == pytest.approx(2.0)
