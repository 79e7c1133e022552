"""The benchmark measures what it says: the engine's own step on the named work, and a count made by hand."""

import dataclasses

from mcpo_cli.grading import Pool
from mcpo_cli.runs.journal import Journal
from tests.bench import engine, flops, grading, workload


def test_local_engine_does_the_named_work() -> None:
    spec = workload.spec("method=mcpo")
    local = engine.LocalEngine(spec, engine.quarters)
    before = [parameter.detach().clone() for parameter in local.policy.parameters()]

    assert local.seconds() > 0

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
    train = dataclasses.replace(spec.train, prompts=1, rollouts=2, max_response=3, mini_batch=1)
    sizes = dataclasses.replace(spec.model, hidden=8, layers=1, heads=1, head_dim=4, mlp=6)
    small = dataclasses.replace(spec, train=train, model=sizes)
    model, tokenizer = workload.fresh_model(small)

    # 5 prompt tokens, 2 rollouts of which 2 tokens each are fed: 9 tokens, 1 + 4 of them with an output.
    weights = 4 * 8 * 4 + 3 * 8 * 6
    # Prompt tokens see 1 + .. + 5 tokens; the fed response tokens of a rollout see 6 and 7.
    pairs = 15 + 2 * (6 + 7)
    forward = 2 * weights * 9 + 2 * len(tokenizer) * 8 * 5 + 4 * 1 * 1 * 4 * pairs
    assert flops.global_step(small, model, prompt_tokens=5) == 4 * forward


def test_graded_answers_are_what_they_are_labelled() -> None:
    items = [*grading.made(grading.latex, 12, seed=3), *grading.made(grading.integer, 4, seed=3)]
    assert len(items) == 16 * grading.SAMPLES
    assert {right for *_, right in items} == {True, False}
    with Pool(workers=1) as pool:
        verdicts = pool.grade([(gold, response) for gold, response, _ in items])
    assert [verdict.status for verdict in verdicts] == ["correct" if right else "wrong" for *_, right in items]
    assert grading.serial([(gold, response) for gold, response, _ in items[:2]]) > 0
