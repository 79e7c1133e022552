"""The cost of training is counted, survives attempts, and gives scores at equal cost."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from mcpo_cli.backends.local import batch, train
from mcpo_cli.backends.local.encoding import Language
from mcpo_cli.backends.local.generate import sample
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.measure import CostTotals
from mcpo_cli.config import cost
from mcpo_cli.config.eval_schedule import eval_steps
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Problem
from mcpo_cli.measures.frames import Runs
from mcpo_cli.records import AXES
from mcpo_cli.runs import origins
from mcpo_cli.runs.attempts import Attempt, missing
from mcpo_cli.runs.journal import Journal
from mcpo_cli.statistics.curves import at_cost
from tests import fakes

UNTRAINED = ("warmup.target_accuracy=0", "warmup.probe_prompts=8")
QUICK = (
    "scale=smoke",
    *UNTRAINED,
    "train.rollouts=2",
    "train.temperature=1",
    "eval.samples=1",
    "compute.checkpoints_after=0",
)


def trained(*overrides: str, quick: Sequence[str] = QUICK) -> tuple[RunSpec, Journal]:
    """A run of the local engine; by default from untrained weights."""
    spec = load([*quick, *overrides])[0]
    folder = Path.cwd() / "runs" / spec.run_id
    attempt = Attempt(folder, spec, start_step=0)
    train.run(spec, attempt, stop=lambda: False)
    assert origins.kept(folder), "a run that is killed before its end continues from them"
    attempt.end("done")
    return spec, Journal(folder)


@pytest.fixture
def here(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """MCPO_HOME, as the current folder."""
    monkeypatch.chdir(mcpo_home)
    return mcpo_home


def test_totals_by_hand(here: Path) -> None:
    """GRPO keeps every group: 3 steps of 8 prompts x 2 rollouts in 2 mini-batches."""
    spec, journal = trained("method=grpo")
    rows = [row["metrics"] for row in journal.steps()]
    assert [row["cost/rollouts"] for row in rows] == [16, 32, 48]
    assert [row["cost/gradient_steps"] for row in rows] == [2, 4, 6]
    sampled = [
        sum(group["mean_length"] * 2 for group in journal.groups() if group["step"] <= step) for step in (1, 2, 3)
    ]
    assert [row["cost/sampled_tokens"] for row in rows] == pytest.approx(sampled)
    expected = [cost.operations(spec, row["cost/sampled_tokens"], row["cost/trained_tokens"]) for row in rows]
    assert [row["cost/flops"] for row in rows] == pytest.approx(expected)
    phases = [row["perf/seconds_sample"] + row["perf/seconds_update"] for row in rows]
    assert rows[-1]["cost/seconds"] == pytest.approx(sum(phases))


@pytest.mark.slow
def test_greedy_responses_are_counted_and_are_the_most_likely(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more rollout for each of 8 prompts of a step; almost cold sampling takes the same tokens."""
    asked = list[tuple[Tensor, int, Tensor, int]]()

    def both(policy: Policy, language: Language, spec: RunSpec, step: int, problems: Sequence[Problem]) -> Any:
        found = batch.greedy_rewards(policy, language, spec, step, problems)
        prompt_PS, most = language.prompts(problems), spec.train.max_response
        cold = sample(policy, prompt_PS, 1, most, 1e-6, language.eos, 0, language.stops)
        right_P = language.grade(problems, cold).correct_PG.squeeze(-1).double()
        asked.append((found[0], found[2], right_P, int(cold.length_PG.sum())))
        return found

    monkeypatch.setattr(train, "greedy_rewards", both)
    _, journal = trained("method=remax", "train.rollouts=2", "train.overlong_cache=0", quick=["scale=smoke"])
    rows = [row["metrics"] for row in journal.steps()]
    assert [row["cost/rollouts"] for row in rows] == [24, 48, 72]
    own = [sum(group["mean_length"] * 2 for group in journal.groups() if group["step"] == step) for step in (1, 2, 3)]
    totals = [0.0, *(row["cost/sampled_tokens"] for row in rows)]
    for place, (reward_P, tokens, cold_P, cold_tokens) in enumerate(asked):
        assert reward_P.tolist() == cold_P.tolist()
        assert tokens == cold_tokens
        assert totals[place + 1] - totals[place] == pytest.approx(own[place] + tokens)
    assert len(asked) == 3
    assert {float(value) for reward_P, *_ in asked for value in reward_P} == {0.0, 1.0}


def test_tokens_that_are_trained_on_belong_to_groups_that_bear_a_gradient(here: Path) -> None:
    """Untrained, nearly all groups are all incorrect. A mini-batch without a mixed group still trains on one group."""
    spec, journal = trained("method=grpo", "train.steps=1", "train.mini_batch=8")
    (row,) = journal.steps()
    mixed = [group for group in journal.groups() if 0 < group["p"] < 1] or journal.groups()[:1]
    tokens = sum(2 * (group["mean_length"] + spec.task.prompt_length) for group in mixed)
    assert row["metrics"]["cost/trained_tokens"] == pytest.approx(tokens)
    assert len(mixed) < 8


def test_totals_go_on_from_the_journal(here: Path) -> None:
    spec = load([*QUICK])[0]
    folder = here / "runs" / spec.run_id
    first, step = Attempt(folder, spec, start_step=0), {"sampled_tokens": 7, "trained_tokens": 5, "gradient_steps": 2}
    spent = CostTotals(spec, Journal(folder), 0)
    for number in (1, 2):
        spent.add(rollouts=10 * number, seconds=0.5, **step)
        first.journal.step({"step": number, "time": 0.0, "metrics": spent.totals})
    Attempt(folder, spec, start_step=1)
    again = CostTotals(spec, Journal(folder), 1)
    assert again.totals["cost/rollouts"] == 10
    again.add(rollouts=20, seconds=0.5, **step)
    assert again.totals == spent.totals


@pytest.mark.slow
def test_evaluations_at_rollouts(here: Path) -> None:
    """16 rollouts a step: multiples of 40 are passed in steps 3 and 5; eval.every and the last step stay."""
    spec, journal = trained("method=grpo", "train.steps=6", "eval.every=4", "eval.every_rollouts=40")
    assert list(journal.files("eval")) == [0, 3, 4, 5, 6]
    assert list(journal.files("samples")) == [3, 4, 5, 6]
    assert not missing(journal.run_dir, spec)
    (journal.run_dir / "attempt_1" / "sums.json").unlink()
    (journal.run_dir / "attempt_1" / "eval" / "step_000003.jsonl").unlink()
    assert missing(journal.run_dir, spec) == ["the evaluation at step 3 has 0 of 18 problems"]


def test_steps_that_pass_several_multiples_are_evaluated_once() -> None:
    spec = load(["scale=smoke", "train.steps=5", "eval.every=5", "eval.every_rollouts=100"])[0]
    assert eval_steps(spec, {1: 99, 2: 100, 3: 350, 4: 399, 5: 450}) == [0, 2, 3, 5]
    assert eval_steps(spec) == [0, 5]


def test_scores_stand_beside_what_they_cost(mcpo_home: Path) -> None:
    plan = fakes.table1("seed=0,1")
    runs = Runs(plan)
    scores = runs.scores()
    assert len(scores) == len(plan.runs) * 3 * 3  # tiers, evaluations
    assert (scores.loc[scores["step"] == 0, list(AXES)] == 0).all(axis=None)
    for run in plan.runs:
        here = scores[(scores["run_id"] == run.spec.run_id) & (scores["step"] == 2)]
        assert here["cost/rollouts"].tolist() == [2 * 8 * 4] * 3
        rows = [row for row in runs.journal(run).eval() if (row["step"], row["tier"]) == (2, "k5-6")]
        mean = sum(row["c"] / row["n"] for row in rows) / len(rows)
        assert here.loc[here["tier"] == "k5-6", "pass@1"].item() == pytest.approx(mean)


def test_a_score_at_a_cost_by_hand() -> None:
    assert at_cost([0, 100, 300], [0.2, 0.4, 0.8], 100) == 0.4
    assert at_cost([0, 100, 300], [0.2, 0.4, 0.8], 150) == pytest.approx(0.5)
    assert math.isnan(at_cost([50, 100], [0.2, 0.4], 49))
    assert math.isnan(at_cost([0, 100], [0.2, 0.4], 100.5))
    with pytest.raises(ValueError, match="costs must rise"):
        at_cost([0, 0], [0.2, 0.4], 0)
    with pytest.raises(ValueError, match="needs a score"):
        at_cost([0, 1], [0.2], 0)
