"""The task: correct answers by an independent evaluator, disjoint held-out tiers, streams that can be resumed."""

import operator as operators
import re

import pytest
import torch

from mcpo_cli import tasks
from mcpo_cli.config.load import load
from mcpo_cli.data.base import Problem
from mcpo_cli.grading import rewards

APPLY = {"+": operators.add, "-": operators.sub, "*": operators.mul}
REGIMES = ["drift", "skills-drift"]


def benchmark(regime: str, *overrides: str) -> tasks.ClosedTask:
    return tasks.closed(load([f"regime={regime}", *overrides])[0].task)


def by_hand(problem: Problem) -> str:
    """The trace by Python's own arithmetic, independent of the generator."""
    words = [word for word in problem.text.split() if word not in "_="]
    turn = "ABC".index(words.pop(0)) if words[0] in "ABC" else 0
    value, trace = int(words[0]), []
    for operator, operand in zip(words[1::2], words[2::2], strict=True):
        meaning = "+-*"[("+-*".index(operator) + turn) % 3]
        value = APPLY[meaning](value, int(operand)) % 11
        trace.append(str(value))
    return " = ".join(trace)


@pytest.mark.parametrize("regime", REGIMES)
def test_golds_are_right_and_prompts_have_one_length(regime: str) -> None:
    task = benchmark(regime)
    problems = [*task.training(0, 0, 300), *task.demonstrations(0, 1, 100)]
    problems += [problem for tier in task.tiers(50).values() for problem in tier]
    assert len({len(problem.text.split()) for problem in problems}) == 1
    for problem in problems:
        assert re.fullmatch(r"([ABC] )?\d+( [-+*] \d+)+( _)* =", problem.text)
        assert problem.gold == by_hand(problem)


def test_tiers_are_the_same_for_everyone_and_named_by_difficulty() -> None:
    assert list(benchmark("drift").tiers(3)) == ["k2-3", "k5-6", "k7-8"]
    assert list(benchmark("skills-drift").tiers(3)) == ["skill-A", "skill-B", "skill-C"]
    assert benchmark("drift", "seed=5").tiers(20) == benchmark("paper-shaped").tiers(20)


@pytest.mark.parametrize(("length", "expected"), [(0, 0.0), (16, 0.0), (17, -0.25), (18, -0.5), (20, -1.0), (25, -1.0)])
def test_overlong_penalty_falls_linearly_in_the_cache(length: int, expected: float) -> None:
    assert float(rewards.overlong_penalty(torch.tensor(length), 20, 4, 1.0)) == expected
    assert float(rewards.overlong_penalty(torch.tensor(length), 20, 4, 0.5)) == expected / 2
    assert float(rewards.overlong_penalty(torch.tensor(length), 20, 0, 1.0)) == 0
