"""Rollouts that could not be graded: left out of advantages, totals, gradients and metrics, as if never sampled."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from mcpo_cli.backends import masking, measure
from mcpo_cli.backends.graded import Graded
from mcpo_cli.backends.local import train
from mcpo_cli.backends.resampling import ResampledPrompt, Resampler
from mcpo_cli.config.load import load
from mcpo_cli.data.base import Problem
from mcpo_cli.grading import Grade
from mcpo_cli.grading.simple import TRACE
from mcpo_cli.methods import Method, MiniBatch, Step, get
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import Journal
from mcpo_cli.testing.batches import step
from tests.errors import refused
from tests.unit.test_conformance import VARIANTS
from tests.unit.test_sampler_contract import drawing

LENGTH_PG = torch.tensor([[1, 2, 3, 4], [2, 2, 2, 2], [3, 3, 3, 3], [1, 1, 1, 1]])
CORRECT_PG = torch.tensor([[1, 0, 0, 1], [1, 0, 1, 1], [0, 0, 0, 1], [0, 0, 1, 0]]).bool()
GRADED_PG = torch.tensor([[1, 1, 0, 1], [1, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1]]).bool()
"""2 of 3 correct; mastered, 3 of 3; one graded rollout, too few; 1 of 4."""


def of() -> Step:
    return Step(CORRECT_PG.double(), CORRECT_PG, LENGTH_PG, torch.arange(4), max_response=4)


@pytest.mark.parametrize(
    ("name", "two_of_three"),
    [
        # r - 2/3.
        ("dr_grpo", [1 / 3, -2 / 3, 0, 1 / 3]),
        # Divided by the deviation, sqrt(2) / 3.
        ("grpo", [2**-0.5, -(2**0.5), 0, 2**-0.5]),
        # And by 2 sqrt(p (1 - p)) at p = 2/3: 4/9 in all.
        ("mcpo", [3 / 4, -3 / 2, 0, 3 / 4]),
    ],
)
def test_advantages_by_hand(name: str, two_of_three: list[float]) -> None:
    method = get(name)
    used_PG = masking.used(method, LENGTH_PG > 0, GRADED_PG)
    assert used_PG.sum(-1).tolist() == [3, 3, 0, 4]
    found, _ = masking.signals(method, of(), {}, used_PG)
    assert found.advantage[0].tolist() == pytest.approx(two_of_three)
    assert not found.advantage[1:3].any()
    whole, _ = method.signals(of(), {})
    assert found.advantage[3].tolist() == pytest.approx(whole.advantage[3].tolist())
    columns = {"mastered": 3.0} if name == "mcpo" else {}
    assert MiniBatch.of(LENGTH_PG, found, 4) == MiniBatch(10, 7 + 6 + 4, 3, 4, columns)
    # The hinge holds the three rollouts of the mastered prompt, and nothing of a group without a verdict.
    held = [[True, False, True, True] if name == "mcpo" else [False] * 4, [False] * 4]
    assert found.has_gradient_PG[1:3].tolist() == held


@pytest.mark.parametrize("method", VARIANTS, ids=repr)
def test_no_method_sees_what_was_not_graded(method: Method) -> None:
    """Whatever stands in these places changes nothing, and nothing comes back there."""
    plain, graded_PG = step(), torch.ones(6, 4).bool()
    graded_PG[1, 2] = graded_PG[3, 0] = graded_PG[4, 1] = False
    used_PG = masking.used(method, plain.length_PG > 0, graded_PG)
    other = dataclasses.replace(
        plain,
        reward_PG=plain.reward_PG.where(graded_PG, 1 - plain.reward_PG),
        correct_PG=plain.correct_PG.where(graded_PG, ~plain.correct_PG),
    )
    (first, _), (second, _) = (masking.signals(method, each, {}, used_PG) for each in (plain, other))
    for one, two in zip(vars(first).items(), vars(second).items(), strict=True):
        parts = zip(one[1].values(), two[1].values(), strict=True) if one[0] == "columns" else [(one[1], two[1])]
        for value, same in parts:
            assert torch.equal(value, same), one[0]
            assert not value[~used_PG].any(), one[0]
    # A method that compares over the whole batch loses the groups; the others lose the rollouts only.
    assert used_PG.sum(-1).tolist() == [4, 3, 4, 3, 3, 4] if method.uneven_groups else [4, 0, 4, 0, 0, 4]


def test_a_step_without_a_whole_group_ends_the_run() -> None:
    nothing_PG = torch.zeros(4, 4).bool()
    with refused("ungraded", "method=grpo has no group"):
        masking.signals(get("grpo"), of(), {}, nothing_PG)


def test_metrics_and_rows_count_graded_rollouts_only() -> None:
    graded = Graded(
        problems=[Problem(name, "1") for name in "abcd"],
        correct_PG=CORRECT_PG & GRADED_PG,
        reward_PG=(CORRECT_PG & GRADED_PG).double(),
        length_PG=LENGTH_PG,
        ended_PG=torch.ones(4, 4).bool(),
        same_P=torch.zeros(4).double(),
        graded_PG=GRADED_PG,
    )
    assert graded.mastered_P.tolist() == [False, True, False, False]
    found = measure.sampled(graded.informed(), 0.0)
    assert found["train/accuracy"] == pytest.approx((2 / 3 + 1 + 1 / 4) / 3)
    assert found["train/reward"] == pytest.approx(6 / 10)
    assert found["mastery/mastered"] == found["mastery/majority_correct"] == found["mastery/minority"] == 1 / 3
    assert found["mastery/all_wrong"] == 0
    assert measure.ungraded(graded) == {"grading/infra_errors": 5 / 16}
    rows = measure.group_rows(1, graded, {0, 1, 2, 3})
    assert [(row["prompt"], row["rollouts"]) for row in rows] == [("a", 3), ("b", 3), ("d", 4)]
    assert [row["p"] for row in rows] == pytest.approx([2 / 3, 1, 1 / 4])
    texts = [["w", "x", "y", "z"]]
    assert [row["response"] for row in measure.sample_rows(1, graded, texts)] == ["w", "x", "z"]


def test_a_sampler_does_not_hear_of_a_group_without_verdicts() -> None:
    from mcpo_cli.prompt_samplers import Refill, Uniform

    filtered, plain = drawing(Refill()), drawing(Uniform())
    for each in (filtered, plain):
        each.draw()
        each.add([0.5, math.nan, 1.0, 0.5], [4, 1, 4, 3])
    assert (filtered.batch, plain.batch) == ([0, 3], [0, 1, 2, 3])
    assert [group.rollouts for group in plain.groups] == [4, 1, 4, 3]


def test_a_resampled_prompt_without_a_verdict_has_no_row(tmp_path: Path) -> None:
    (spec,) = load(["scale=smoke", "probe.panel=2", "probe.panel_every=1"])
    resampler = Resampler(spec, Journal(tmp_path), 0, [Problem("a", "1"), Problem("b", "2")])
    due = [ResampledPrompt(Problem(text, "1"), "panel", 0) for text in ("a", "b")]
    rows, metrics = resampler.record(1, due, [0, 4], [0, 3])
    assert [(row["prompt"], row["n"], row["c"]) for row in rows] == [("b", 4, 3)]
    assert metrics == {"probe/rollouts": 4.0, "probe/panel_accuracy": 0.75, "probe/panel_mastered": 0.0}


def test_a_run_of_the_local_engine_goes_on_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The grader of the toy task fails on one answer in seven, chosen by its text."""
    grade = TRACE.grade

    def sometimes(gold: str, response: str, extracted: bool) -> Grade:
        failed = sum(map(ord, gold + response)) % 7 == 0
        return Grade("infra_error", detail="killed") if failed else grade(gold, response, extracted)

    monkeypatch.setitem(vars(TRACE), "grade", sometimes)
    (spec,) = load(["scale=smoke", "method=mcpo", "train.steps=2", "train.prompts=16", "probe.every=1"])
    folder = tmp_path / spec.run_id
    train.run(spec, Attempt(folder, spec, 0), stop=lambda: False)
    journal = Journal(folder)
    shares = [row["metrics"]["grading/infra_errors"] for row in journal.steps()]
    assert all(0.02 < share < 0.4 for share in shares)
    rollouts: list[Any] = [row["rollouts"] for row in journal.groups()]
    assert min(rollouts) >= 2
    assert len({*rollouts}) > 1
    held = [row for row in journal.eval() if row.get("ungraded")]
    assert held
    assert all(row["n"] + row["ungraded"] == spec.eval.samples for row in held)
