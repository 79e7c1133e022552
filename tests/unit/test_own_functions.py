"""Functions of users as rewards and graders, and `reward=` and `data=`: meaning, failures, identity."""

import asyncio
import json
import os
import re
from pathlib import Path

import pytest

from mcpo_cli import grading
from mcpo_cli.backends.verl import data as verl_data
from mcpo_cli.backends.verl import reward
from mcpo_cli.config import plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.config.words import spelled_out
from mcpo_cli.data.base import Problem
from mcpo_cli.errors import RunFailed
from mcpo_cli.grading import Grade, Pool, functions
from tests.conftest import forget_plugins
from tests.errors import refused

MINE = '''\
"""Rewards of mine,
whose lines are counted below."""


def score(problem, response, gold):
    """A point for the gold, less a hundredth per letter."""
    return (gold in response) - len(response) / 100


def right(problem, response, gold):
    return gold in response and problem.startswith("What")


def raises(problem, response, gold):
    return float(response)  # line 15


def hangs(problem, response, gold):
    while True:
        pass


def leaves(problem, response, gold):
    raise SystemExit(0)
'''
PROBLEM = Problem("What is 2 + 3?", "5")
SIZES = ("train.prompts=2", "train.mini_batch=2")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps({"problem": f"What is 1 + {i}?", "answer": i + 1}) + "\n" for i in range(64)))
    return path


def judged(reference: str, response: str) -> Grade:
    return functions.load(reference).grade(functions.question(reference, PROBLEM.text, PROBLEM.gold), response, False)


def planned(*overrides: str) -> RunSpec:
    forget_plugins()
    (run,) = plan.from_overrides(overrides).runs
    return run.spec


@pytest.mark.parametrize(
    ("name", "response", "expected", "rewarded"),
    [
        ("score", "5", Grade("wrong", score=0.99), 0.99),
        ("score", "4", Grade("wrong", score=-0.01), -0.01),
        ("right", "It is 5.", Grade("correct", score=1.0), 1.0),
        ("right", "It is 4.", Grade("wrong", score=0.0), 0.0),
    ],
)
def test_a_function_returns_the_reward(name: str, response: str, expected: Grade, rewarded: float, mine: Path) -> None:
    assert judged(f"{mine}:{name}", response) == expected
    assert expected.reward == rewarded
    assert (Grade("correct").reward, Grade("timeout").reward) == (1.0, 0.0)


def test_an_error_in_a_function_names_its_line_and_the_response(mine: Path) -> None:
    said = "mine.py:raises, line 15: ValueError: could not convert string to float: 'five'; the response was 'five'"
    assert judged(f"{mine}:raises", "five") == Grade("infra_error", detail=said)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("f = lambda problem, response, gold: 1.0", 1.0),
        ("f = functools.partial(lambda a, b, c, d: d, d=0.5)", 0.5),
        ("class C:\n    def __call__(self, *all): return 2\nf = C()", 2.0),
        ("async def f(problem, response, gold): return 0.25", 0.25),
        ("def f(a, b, *rest): return 1", 1.0),
        ("def f(problem, response, gold, more=1): return 1", 1.0),
        ("def f(a, b, c, *, d=1): return 1", 1.0),
        ("def f(*all): return np.float64(1) > 0", 1.0),
        ("def f(*all): return np.array(0.5)", 0.5),
        ("def f(*all): return Decimal('0.5')", 0.5),
        ("f = 3", "f is int, which cannot be called"),
        ("def f(*all): pass", "TypeError: it returned None, not a number: a return is missing"),
        ("def f(*all): return [1.0]", "TypeError: it returned list, not a number"),
        ("def f(*all): return '1'", "TypeError: it returned str, not a number"),
        ("def f(*all): return np.nan", "ValueError: it returned nan"),
        ("def f(*all): return -1e308", "ValueError: it returned -1e+308; the largest reward is 1e+12"),
        ("def f(*all):\n    input('go on?')", "line 5: EOFError"),
        ("import sys\ndef f(*all):\n    sys.exit(0)", "line 6: SystemExit"),
        ("import os\ndef f(*all): os._exit(3)", "mine.py:f: the grading process died twice"),
    ],
)
def test_what_people_write_and_return(body: str, expected: float | str, tmp_path: Path) -> None:
    """Callables of every kind are taken; anything else is an error that names the function."""
    reference = f"{tmp_path}/mine.py:f"
    (tmp_path / "mine.py").write_text(f"import functools\nimport numpy as np\nfrom decimal import Decimal\n{body}\n")
    functions.check("train.reward", reference)
    apart = body == "f = 3" or any(word in body for word in ("input", "exit"))
    try:
        if apart:
            with Pool(reference, workers=1) as pool:
                (verdict,) = pool.grade([(functions.question(reference, "What?", "5"), "5")])
        else:
            verdict = judged(reference, "5")
        shown: float | str = verdict.detail if verdict.score is None else verdict.score
    except RunFailed as error:
        shown = error.message
    if isinstance(expected, str):
        assert "mine.py:f" in str(shown)
        assert expected in str(shown)
    else:
        assert shown == expected


def test_what_a_function_prints_fills_no_disk(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("def loud(*asked):\n    print('x' * 2**20, flush=True)\n    return 1\n")
    grader = f"{tmp_path / 'loud.py'}:loud"
    with Pool(grader, workers=1) as pool:
        pool.grade([(functions.question(grader, "What?", "5"), str(number)) for number in range(8)])
        assert os.fstat(pool._workers[0]._errors).st_size < 3 * 2**20


@pytest.mark.parametrize(("name", "timeout"), [("hangs", 0.2), ("leaves", 5.0)])
def test_a_function_that_hangs_or_leaves_is_asked_once(name: str, timeout: float, mine: Path) -> None:
    with Pool(f"{mine}:{name}", workers=1, timeout=timeout) as pool:
        first, *others = pool.grade([(functions.question(f"{mine}:{name}", "What?", "5"), "5")] * 50)
    assert first.status == "infra_error"
    assert all(one is first for one in others)


@pytest.mark.parametrize(
    ("reference", "content", "code"),
    [
        ("none.py:score", None, "not_found"),
        ("broken.py:score", "def score(:", "bad_function"),
        ("other.py:score", "def scored(problem, response, gold): pass", "bad_function"),
        ("two.py:two", "def two(response, gold): pass", "bad_function"),
        ("named.py:named", "def named(problem, response, gold, *, more): pass", "bad_function"),
        ("kind.py:Kind", "class Kind:\n    def __call__(self, problem, response, gold): pass", "bad_function"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_before_a_run(
    reference: str, content: str | None, code: str, tmp_path: Path, problems: Path
) -> None:
    if content:
        (tmp_path / reference.partition(":")[0]).write_text(content)
    for setting in ("train.reward", "task.graded_by")[: 1 + (code == "not_found")]:
        with refused(code, setting):
            planned(f"data={problems}", f"{setting}={tmp_path / reference}")


def test_short_words() -> None:
    assert spelled_out(["reward=a.py:f", "seed=1"]) == ["train.reward=a.py:f", "seed=1"]
    held_out = "task.benchmarks=[held_out]"
    assert spelled_out(["model=./mine,A/B", "model=toy-s", "model=./mine.yaml"]) == [
        "model.path=./mine,A/B",
        "model=toy-s",
        "model=./mine.yaml",
    ]
    assert spelled_out(["data=./a.jsonl"]) == ["task=math", held_out, "task.data=./a.jsonl"]
    assert spelled_out(["data=gsm8k_train"]) == ["task=math", "task.data=gsm8k_train"]
    given = ["data=./a.jsonl", "task=math", "task.benchmarks=[aime24]"]
    assert spelled_out(given) == ["task.data=./a.jsonl", *given[1:]]


def test_one_in_eight_problems_of_a_file_is_held_out(problems: Path) -> None:
    spec = planned(f"data={problems}", *SIZES)
    found = spec.task.problems(spec.train, lambda messages: 1)
    held_out = {problem.text for problem in found.tiers(1)["held_out"]}
    trained = {problem.text for problem in found.training(0, 0, 200)}
    every = {f"What is 1 + {i}?" for i in range(64)}
    assert held_out | trained == every
    assert not held_out & trained
    assert 2 <= len(held_out) <= 20
    assert spec.task.tier_sizes(5) == {"held_out": len(held_out)}
    spec.task.check()


def test_a_function_grades_files_and_published_sets_keep_their_graders(mine: Path, problems: Path) -> None:
    right = f"{mine}:right"
    spec = planned(f"data={problems}", "task.benchmarks=[held_out,aime24]", f"task.graded_by={right}", *SIZES)
    assert [spec.task.grader_of(name) for name in spec.task.published] == [right, right, "math_verify"]
    assert list(spec.plugins) == ["grader mine.py:right"]
    with refused("contradiction", "task.graded_by"):
        planned("task=math", f"task.graded_by={right}")
    with refused("contradiction", "task.graded_by"):
        planned(f"data={problems}", "task.graded_by=nope")


@pytest.mark.slow
def test_a_run_is_another_one_when_the_code_changes_and_only_then(mine: Path) -> None:
    words = (f"reward={mine}:score", "seed=3")
    spec, plain = planned(*words), planned("seed=3")
    assert "plugins" not in plain.identity()
    assert plain.base_id == spec.base_id
    assert spec.run_id != plain.run_id
    mine.write_text(MINE.replace("of mine", "of ours").replace("# line 15", "# a comment").replace("A point", "1"))
    assert planned(*words).run_id == spec.run_id
    mine.write_text(MINE.replace("100", "50"))
    assert planned(*words).run_id != spec.run_id
    assert planned(*words).base_id == spec.base_id


def test_the_page_s_function_and_commands(tmp_path: Path, problems: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "your-model.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "mine.py").write_text(source + source.replace("score", "is_right"))
    monkeypatch.chdir(tmp_path)
    assert judged("./mine.py:score", "2 + 3\nmakes 5").score == 1.1
    assert judged("./mine.py:score", "5\n" * 200 + "six").score == 0.0
    plans = [
        planned(*words.split())
        for words in re.findall(r"^\$ mcpo train (.*)$", page, re.MULTILINE)
        if "--dry-run" not in words
    ]
    rewarded, toy, graded = plans
    assert list(rewarded.plugins) == list(toy.plugins) == ["reward mine.py:score"]
    assert list(graded.plugins) == ["grader mine.py:is_right"]
    assert list(rewarded.task.tier_sizes(1)) == list(graded.task.tier_sizes(1)) == ["held_out"]


@pytest.mark.slow
def test_verl_gets_the_reward_of_the_function_and_the_verdict_of_the_grader(
    mine: Path, problems: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The fixture `no_pool_left` closes it.
    monkeypatch.setattr(reward, "_pool", grading._pool)
    spec = planned(f"data={problems}", f"reward={mine}:score", *SIZES)
    row = verl_data.row(spec, "problems", "train", 0, PROBLEM)
    assert "reward" not in verl_data.row(spec, "held_out", "held_out", 0, PROBLEM)["extra_info"]

    def scored(response: str) -> dict[str, object]:
        gold = row["reward_model"]["ground_truth"]
        return asyncio.run(reward.compute_score("problems", response, gold, row["extra_info"]))

    assert scored("Answer: 5") == {
        "score": pytest.approx(1 - 0.09),
        "acc": 1.0,
        "status": "correct",
        "detail": "",
        "answer": "5",
    }
    assert scored("Answer: 4")["score"] == pytest.approx(-0.09)
    row["extra_info"]["reward"] = f"{mine}:raises"
    failed = scored("Answer: 5")
    assert failed["status"] == "infra_error"
    assert "line 15" in str(failed["detail"])
