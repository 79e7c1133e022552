"""The task `math` for existing models: its prompts, training sets in the hub's format, and files of the user."""

import json
import re
from pathlib import Path

import pytest

from mcpo_cli import grading, tasks
from mcpo_cli.config.load import from_dict, load
from mcpo_cli.data.base import Problem
from mcpo_cli.tasks.math import Math
from tests.errors import refused

PROBLEM = Problem("What is 1 + 1?", "2")
SIZES = ("train.prompts=2", "train.mini_batch=2")


def math(**options: object) -> Math:
    found = tasks.get("math", **options)
    assert isinstance(found, Math)
    return found


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A training file and a held-out file, in different columns; one problem is in both."""
    training, held_out = tmp_path / "problems.jsonl", tmp_path / "held_out.jsonl"
    rows = [{"problem": f"{i} + 1?", "answer": i + 1} for i in range(6)]
    training.write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"question": f"{i} + 1?", "ground_truth": str(i + 1)} for i in range(5, 8)]
    held_out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return training, held_out


def of(files: tuple[Path, Path], *more: str) -> list[str]:
    training, held_out = files
    return ["task=math", f"task.data={training}", f"task.benchmarks=[{held_out}]", *SIZES, *more]


# prompts


def test_the_default_prompt_is_one_turn_in_the_paper_s_template() -> None:
    (turn,) = math().messages(PROBLEM)
    assert turn["role"] == "user"
    assert re.fullmatch(r"Solve the following .*\n\nWhat is 1 \+ 1\?\n\nRemember to put .*", turn["content"], re.DOTALL)
    assert math().stops == ()


def test_prompts_with_examples() -> None:
    plain = math(style="plain", prompt="plain", examples=1)
    assert plain.messages(PROBLEM) == [
        {
            "role": "text",
            "content": "Problem: A train covers 180 km in 3 hours. "
            "How many km does it cover in 5 hours at the same speed?\n"
            "Solution: The speed is 180 / 3 = 60 km per hour. In 5 hours the train covers 60 * 5 = 300 km. "
            "The answer is 300.\n\n"
            "Problem: What is 1 + 1?\n"
            "Solution:",
        }
    ]
    assert plain.stops == ("\nProblem:",)
    chat = math(system="Think.", template="{question} Answer in a box.", examples=1)
    roles = [message["role"] for message in chat.messages(PROBLEM)]
    assert roles == ["system", "user", "assistant", "user"]
    assert chat.messages(PROBLEM)[-1]["content"] == "What is 1 + 1? Answer in a box."


@pytest.mark.parametrize("prompt", ["dapo", "boxed", "plain"])
def test_worked_examples_are_correct_answers(prompt: str) -> None:
    one = math(prompt=prompt)
    for (_, response), gold in zip(one.worked, ("300", "13", "13", "7"), strict=True):
        assert grading.loaded("math_verify").grade(gold, response, False).status == "correct"
        assert not any(stop in response for stop in math(prompt=prompt, style="plain").stops)


# files


def test_own_files(files: tuple[Path, Path]) -> None:
    (spec,) = load(of(files))
    task = spec.task
    assert (task.source, task.published) == ("problems", ("problems", "held_out"))
    assert task.grader_of("held_out") == task.grader_of("problems") == "math_verify"
    task.check()
    problems = task.problems(spec.train, lambda messages: 1)
    assert [problem.gold for problem in sorted(problems.tiers(1)["held_out"], key=lambda one: one.gold)] == [
        "6",
        "7",
        "8",
    ]
    assert {problem.text for problem in problems.training(0, 0, 50)} == {f"{i} + 1?" for i in range(5)}
    sources = problems.sources()
    assert (sources["problems"]["problems"], sources["problems"]["left_out"]) == (6, 1)
    assert sources["held_out"]["source"] == "held_out.jsonl"


def test_the_content_of_own_files_is_part_of_a_run(files: tuple[Path, Path]) -> None:
    (spec,) = load(of(files))
    assert spec.run_id == load(of(files))[0].run_id
    assert spec.run_id != load([*of(files), "task.prompt=plain"])[0].run_id
    files[0].write_text(files[0].read_text() + '{"problem": "new?", "answer": 1}\n')
    changed = load(of(files))[0]
    assert changed.run_id != spec.run_id
    again = from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again.run_id == spec.run_id
    for use in (again.task.check, lambda: again.task.problems(again.train, lambda messages: 1).training(0, 0, 1)):
        with refused("changed", "problems.jsonl"):
            use()
    # The run's record can be read without the files.
    for file in files:
        file.unlink()
    assert from_dict(json.loads(json.dumps(spec.to_dict()))).task.tier_sizes(5) == {"held_out": 3}


def test_what_is_wrong_with_own_files_is_told_once(files: tuple[Path, Path]) -> None:
    training = files[0]
    (spec,) = load(of(files))
    assert [*spec.task.cautions()] == ["problems.jsonl: problems are left out of training: 1 also in held_out"]
    rows = [
        ("a", r"\frac{1}{"),
        ("b", "This is proved by induction on n, since it is true of the first of all"),
        ("c", "x"),
    ]
    rows += [("d", "1"), ("d", "2")]
    with training.open("a") as file:
        file.writelines(json.dumps({"problem": problem, "answer": gold}) + "\n" for problem, gold in rows)
    (spec,) = load(of(files))
    unmatched, left_out = spec.task.cautions()
    assert "no answer is correct for 2 of 3 golds" in unmatched
    assert f"mcpo components check data {training}" in unmatched
    assert left_out.endswith("1 also in held_out, 1 with contradicting golds")


def test_a_training_file_of_which_nothing_is_left(files: tuple[Path, Path]) -> None:
    training, held_out = files
    held_out.write_text(training.read_text())
    (spec,) = load(of(files))
    with refused("no_room", "6 also in held_out"):
        spec.task.problems(spec.train, lambda messages: 1).training(0, 0, 1)
    training.write_text("".join(json.dumps({"problem": "a", "answer": gold}) + "\n" for gold in (1, 2)))
    with refused("bad_data", "contradicting golds"):
        load(of(files))


def test_own_files_that_cannot_be_used(files: tuple[Path, Path]) -> None:
    training, held_out = files
    with refused("not_found", "problem.jsonl", "problems.jsonl"):
        load(["task=math", f"task.data={training.with_name('problem.jsonl')}"])
    with refused("contradiction"):
        load(["task=math", f"task.data={training}", f"task.benchmarks=[{training}]"])
    held_out.write_text('{"text": "1?", "answer": 1}\n')
    with refused("bad_data"):
        load(of(files))
