"""`mcpo train reward=FILE.py:FUNCTION data=FILE` trains existing models, and models from scratch."""

import json
from pathlib import Path

import pytest

from mcpo_cli.backends.local import BACKEND
from mcpo_cli.config import cost, plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.attempts import Attempt, state
from mcpo_cli.runs.journal import Journal
from tests.models import existing

pytestmark = pytest.mark.slow
MINE = """\
def vowels(problem, response, gold):
    assert problem.startswith("What is") or problem.endswith("=")
    return sum(letter in "aeiou0123456789" for letter in response) / 8


def ends(problem, response, gold):
    return len(response) % 2 == 0
"""
SMALL = "train.steps=2 train.prompts=4 train.mini_batch=2 train.rollouts=4 train.overlong_cache=0 eval.problems=4"
QUICK = "eval.samples=2 probe.panel=2 compute.sample_groups=4"


def trained(home: Path, *words: str) -> tuple[RunSpec, Journal]:
    (run,) = plan.from_overrides([*words, *SMALL.split(), *QUICK.split()]).runs
    BACKEND.check_machine(cost.estimate(run.spec))
    attempt = Attempt(home / "runs" / run.spec.run_id, run.spec, 0)
    BACKEND.run(run.spec, attempt, lambda: False)
    attempt.end("done")
    assert state(home / "runs" / run.spec.run_id, run.spec) == "done"
    return run.spec, Journal(home / "runs" / run.spec.run_id)


def test_a_chat_model_is_rewarded_and_graded_by_functions(tmp_path: Path, mcpo_home: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    rows = [{"problem": f"What is 1 + {i}?", "answer": i + 1} for i in range(64)]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec, journal = trained(
        mcpo_home,
        f"model.path={existing(tmp_path / 'model', max_position_embeddings=512)}",
        f"reward={tmp_path}/mine.py:vowels",
        f"data={tmp_path}/problems.jsonl",
        f"task.graded_by={tmp_path}/mine.py:ends",
        "method=grpo",
        "train.max_prompt=400",
        "train.max_response=8",
        "train.lr=1e-3",
    )
    assert sorted(spec.plugins) == ["grader mine.py:ends", "reward mine.py:vowels"]
    for row in journal.steps():
        assert row["metrics"]["train/reward"] > 0
    # All groups keep their samples: each response has the reward and the verdict of its function.
    names: dict[str, object] = {}
    exec(MINE, names)
    vowels, ends = names["vowels"], names["ends"]
    assert callable(vowels)
    assert callable(ends)
    samples = [row for row in journal.rows("samples") if row["step"] == 2]
    assert len(samples) == 16
    texts = [row["response"].removesuffix("<|end|>") for row in samples]
    assert any("<|" in text for text in texts)
    assert [row["correct"] for row in samples] == [ends("", text, "") for text in texts]
    mean = sum(vowels("What is", text, "") for text in texts) / 16
    (last,) = [row["metrics"] for row in journal.steps() if row["step"] == 2]
    assert last["train/reward"] == pytest.approx(mean)
    held_out = [row for row in journal.rows("eval") if row["step"] == 2]
    assert {row["tier"] for row in held_out} == {"held_out"}
    assert spec.task.tier_sizes(1) == {"held_out": len(held_out)}
