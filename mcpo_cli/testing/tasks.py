"""Requirements on every task, built in or not. `mcpo components check task NAME` runs them.

>>> from mcpo_cli.tasks import get
>>> [outcome.name for outcome in check_task(get("sums")) if not outcome.passed]
[]
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from mcpo_cli.config.schema import Eval, Train
from mcpo_cli.data.base import Problem
from mcpo_cli.grading import Grade, Pool, functions
from mcpo_cli.tasks import ClosedTask, Problems, Task
from mcpo_cli.testing.outcomes import CheckOutcome, named, outcomes

DRAWN = 512
"""Training problems that are looked at."""
JUDGED = 32
"""Problems of training, and of each tier, whose answers are graded."""
NAME = re.compile(r"[\w. -]+")
"""Characters that MLflow takes in a metric's name."""
ODD = ("", "\n", "no answer", "?" * 5000, "\\boxed{" * 300, "1e999", "\u00e9\u4e2d\U0001f600")
"""Responses without an answer."""
TELL = """
import json, sys
from mcpo_cli import tasks
from mcpo_cli.config.schema import Train

task = tasks.get(sys.argv[1], **json.loads(sys.argv[2]))
problems = task.problems(Train(), lambda messages: 1)
tiers = {tier: list(found) for tier, found in problems.tiers(int(sys.argv[3])).items()}
print(problems.training(0, 0, int(sys.argv[4])), tiers)
"""
"""Prints the problems of a task, in a process that imports only what it needs."""


@dataclass(frozen=True)
class Checked:
    """A task, with the settings of the runs that are to train on it."""

    task: Task
    held_out: int = Eval.problems
    """`eval.problems`: problems of each tier."""
    prompts: int = Train.prompts
    """`train.prompts`: problems of a batch."""

    @property
    def problems(self) -> Problems:
        """Its problems in a run whose prompts all fit."""
        return self.task.problems(Train(), lambda messages: 1)

    def training(self, seed: int = 0) -> list[Problem]:
        """The first DRAWN training problems of a seed."""
        return self.problems.training(seed, 0, DRAWN)

    @cached_property
    def tiers(self) -> dict[str, Sequence[Problem]]:
        """The held-out problems of each tier."""
        return dict(self.problems.tiers(self.held_out))


def check_task(task: Task, *, held_out: int = Eval.problems, prompts: int = Train.prompts) -> list[CheckOutcome]:
    """Every check on `task`, in order; a failed check does not stop the others.

    Args:
        task: with its options.
        held_out: required problems of each tier (`eval.problems`).
        prompts: required number of different training problems (`train.prompts`).
    """
    return outcomes(TASK_CHECKS, Checked(task, held_out, prompts))


def names_and_settings(checked: Checked) -> None:
    """Tiers have names that metrics can have, and the options agree with each other and with the default lengths."""
    for tier in checked.task.tier_sizes(Eval.problems):
        assert NAME.fullmatch(tier), f"tier {tier!r}: only letters, digits, '_', '-', '.' and blanks"
    assert checked.task.title.strip(), "the title is empty"
    lengths = dataclasses.replace(Train(), max_prompt=2**20, max_response=2**20)
    for message, _ in checked.task.contradictions(lengths):
        raise AssertionError(message)


def enough_different_problems(checked: Checked) -> None:
    """Training has a batch of different problems or more, and each tier has as many as it says, all different."""
    count = len({problem.text for problem in checked.training()})
    message = (
        f"{count} different training problems in {DRAWN}; a batch has {checked.prompts}\n  fix: train.prompts={count}"
    )
    assert count >= checked.prompts, message
    for tier, size in checked.task.tier_sizes(checked.held_out).items():
        texts = [problem.text for problem in checked.tiers[tier]]
        assert len(texts) == size > 0, f"tier {tier} has {len(texts)} problems, and tier_sizes says {size}"
        assert len(set(texts)) == size, f"tier {tier} repeats a problem: {_first_twice(texts)!r}"


def training_and_held_out_problems_are_apart(checked: Checked) -> None:
    """No held-out problem is among the training problems, of two seeds."""
    training_texts = {problem.text for seed in (0, 1) for problem in checked.training(seed)}
    for tier, problems in checked.tiers.items():
        overlap = [problem.text for problem in problems if problem.text in training_texts]
        assert not overlap, f"{len(overlap)} problems of tier {tier} are trained on, such as {overlap[0]!r}"


def the_same_seed_gives_the_same_problems(checked: Checked) -> None:
    """Problems depend on the seed and their position alone: not on what was drawn before, nor on the process."""
    stream, other_problems = checked.problems, checked.training(1)
    assert stream.training(0, 100, 50) == checked.training()[100:150], "a problem depends on which were drawn with it"
    assert other_problems != checked.training(), "two seeds give the same training problems"
    options, held_out = json.dumps(dataclasses.asdict(checked.task)), sum(map(len, checked.tiers.values()))
    assert held_out, "no problem is held out"
    # Hashes of texts differ between processes, and with them the order of sets.
    outputs = {
        subprocess.run(
            [sys.executable, "-c", TELL, checked.task.name, options, str(checked.held_out), str(JUDGED)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1, "two processes draw different problems: is the order of a set, or a clock, used?"


def prompts_tell_problems_apart(checked: Checked) -> None:
    """Each problem has its own prompt, of messages; a closed task's words are in its vocabulary."""
    for problems in (checked.training()[:JUDGED], *checked.tiers.values()):
        prompts = {json.dumps(checked.task.messages(problem)) for problem in problems}
        texts = {problem.text for problem in problems}
        assert len(prompts) == len(texts), f"{len(texts)} problems have {len(prompts)} different prompts"
        if isinstance(task := checked.task, ClosedTask) and task.vocabulary:
            for problem in problems:
                _check_words(task, problem.text)


def _check_words(task: ClosedTask, text: str) -> None:
    words = [*text] if " " in task.vocabulary else text.split()
    unknown_words = {*words} - {*task.vocabulary}
    assert not unknown_words, f"{text!r}: {', '.join(map(repr, sorted(unknown_words)))} is not in the vocabulary"
    assert len(words) == task.prompt_length, f"{text!r} has {len(words)} words, not {task.prompt_length}"


def correct_answers_are_graded_correct(checked: Checked) -> None:
    """`solution` of each problem, by default its gold, is graded correct: as a response, or bare."""
    for grader, problems in _to_judge(checked):
        responses = [(problem, checked.task.solution(problem)) for problem in problems]
        whole_grades, bare_grades = (_judge(grader, responses, extracted=extracted) for extracted in (False, True))
        for (problem, solution), whole_grade, bare_grade in zip(responses, whole_grades, bare_grades, strict=True):
            outcome = f"{whole_grade.status} {whole_grade.detail}".strip()
            assert "correct" in (whole_grade.status, bare_grade.status), (
                f"{grader}: {outcome}: {solution!r}, to {problem.text!r}"
            )


def wrong_answers_are_graded_wrong(checked: Checked) -> None:
    """Nothing, the prompt itself, and the solution of another problem are not graded correct."""
    for grader, problems in _to_judge(checked):
        responses = [(problem, text) for problem in problems[:4] for text in ("", problem.text)]
        pairs = zip(problems, [*problems[1:], problems[0]], strict=True)
        # A problem with several answers may share one with another problem by chance, but not half of the problems.
        swaps = [(problem, checked.task.solution(other)) for problem, other in pairs if problem.gold != other.gold]
        verdicts = _judge(grader, [*responses, *swaps])
        mistakes = [
            pair for pair, verdict in zip([*responses, *swaps], verdicts, strict=True) if verdict.status == "correct"
        ]
        limit = 0 if getattr(checked.task, "one_right_response", True) else len(swaps) / 2
        is_wrong = len(mistakes) <= limit and not any(answer in responses for answer in mistakes)
        assert is_wrong, f"{grader}: correct: {mistakes[0][1]!r}, to {mistakes[0][0].text!r}"


def every_response_gets_a_verdict(checked: Checked) -> None:
    """Grading ends within the limits and raises nothing, whatever the response; the same twice gives the same."""
    for grader, problems in _to_judge(checked):
        first_verdicts, second_verdicts = (_judge(grader, [(problems[0], text) for text in ODD]) for _ in range(2))
        for text, verdict in zip(ODD, first_verdicts, strict=True):
            is_wrong = verdict.status in ("wrong", "unparsable", "unevaluated")
            assert is_wrong, f"{grader}: {verdict.status} {verdict.detail}: {text[:20]!r}"
        assert first_verdicts == second_verdicts, f"{grader}: the same response gets two verdicts"


TASK_CHECKS = named(
    names_and_settings,
    enough_different_problems,
    training_and_held_out_problems_are_apart,
    the_same_seed_gives_the_same_problems,
    prompts_tell_problems_apart,
    correct_answers_are_graded_correct,
    wrong_answers_are_graded_wrong,
    every_response_gets_a_verdict,
)
"""Each check by its name in words; its docstring states the requirement."""


def _to_judge(checked: Checked) -> list[tuple[str, list[Problem]]]:
    """Graders with the problems that they judge: some of training and of each tier."""
    task, problems_of = checked.task, dict[str, list[Problem]]()
    for source, problems in {task.source: checked.training(), **checked.tiers}.items():
        problems_of.setdefault(task.grader_of(source), []).extend(problems[:JUDGED])
    return list(problems_of.items())


def _judge(grader: str, responses: Sequence[tuple[Problem, str]], *, extracted: bool = False) -> list[Grade]:
    with Pool(grader, workers=1, refuse_unevaluated=True) as pool:
        pairs = [(functions.question(grader, problem.text, problem.gold), text) for problem, text in responses]
        return pool.grade(pairs, extracted=extracted)


def _first_twice(texts: Sequence[str]) -> str:
    return next(text for index, text in enumerate(texts) if text in texts[:index])
