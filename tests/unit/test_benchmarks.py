"""The benchmark times the engine's own step on the stated work; its count of operations by hand, and its rows."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from benchmarks import engine, flops, rows, workload
from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.runs.journal import Journal


@pytest.mark.slow
def test_local_engine_does_the_named_work() -> None:
    spec = workload.spec("method=mcpo")
    local = engine.LocalEngine(spec, engine.quarters)
    before = [parameter.detach().clone() for parameter in local.policy.parameters()]

    assert local.seconds() > 0
    assert local.needed > 0

    journal = Journal(local.attempt.folder.parent)
    groups = journal.groups()
    assert len(groups) == 128
    assert {row["mean_length"] for row in groups} == {16.0}
    assert sum(row["p"] == 1 for row in groups) == sum(row["p"] == 0 for row in groups) == 32
    (step,) = journal.steps()
    assert step["metrics"]["train/entropy"] > 1
    assert any((old != new).any() for old, new in zip(before, local.policy.parameters(), strict=True))
    assert int(next(iter(local.updater.optimizer.state.values()))["step"]) == 2


def test_flop_count_equals_a_count_by_hand() -> None:
    spec = workload.spec("method=mcpo")
    sizes = dataclasses.replace(spec.model, hidden=8, layers=1, heads=1, head_dim=4, mlp=6)
    small = dataclasses.replace(spec, model=sizes)
    model, tokenizer = workload.fresh_model(small)
    # One prompt of 5 tokens; two responses of 3 tokens share a prefix, a third has one token, which predicts nothing.
    token_PGT, length_PG = torch.tensor([[[7, 8, 9], [7, 6, 9], [5, 0, 0]]]), torch.tensor([[3, 3, 1]])
    nothing_PGT = torch.zeros(1, 3, 3)
    both = Rollouts(torch.ones(1, 5, dtype=torch.int64), token_PGT, length_PG, length_PG > 0, nothing_PGT, nothing_PGT)

    # Prefixes: 7, 7 8 and 7 6. With the prompt's 5 these are 8 rows, 1 + 3 of them with an output.
    weights = 4 * 8 * 4 + 3 * 8 * 6
    # Prompt tokens see 1 + .. + 5 tokens; 7 sees 6, the two after it see 7.
    pairs = 15 + 6 + 7 + 7
    forward = 2 * weights * 8 + 2 * len(tokenizer) * 8 * 4 + 4 * 1 * 1 * 4 * pairs
    assert flops.forward(small, model, both) == forward
    assert flops.global_step(small, model, both, both) == 4 * forward


def test_rows_are_appended_with_the_machine_beside_the_numbers(tmp_path: Path) -> None:
    file = tmp_path / "results" / "made-up.jsonl"
    for seconds in (1.23456, 0.98765):
        rows.record("step", {"model": "toy-s", "tokens": 16}, {"cpu_seconds": seconds}, file)

    first, second = map(json.loads, file.read_text().splitlines())
    assert (first["measure"], first["model"], first["tokens"]) == ("step", "toy-s", 16)
    assert (first["cpu_seconds"], second["cpu_seconds"]) == (1.235, 0.9877)
    assert first["cores"] >= 1
    assert {"date", "commit", "processor", "instructions", "load", "memory_gb", "torch"} <= first.keys()


def test_a_case_must_not_hide_a_fact_of_the_machine(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cores"):
        rows.record("step", {"cores": 64}, {"seconds": 1.0}, tmp_path / "rows.jsonl")
    assert not (tmp_path / "rows.jsonl").exists()
