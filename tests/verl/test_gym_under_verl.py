"""Problems of reasoning-gym under verl, from draw to panel: the package's verifier rewards the rollouts.

The method is the plug-in that a page of the documentation writes.
"""

import re

import pytest

from mcpo_cli.runs.journal import Journal
from tests.verl.conftest import Runs, nobody_is_left

pytest.importorskip("pycosat", reason="reasoning-gym needs it, and it takes a C compiler to build")
pytestmark = [pytest.mark.verl, pytest.mark.slow]

TASK = (
    "task=gym",
    "task.data=reasoning_gym:chain_sum",
    'task.config=["min_terms=2","max_terms=2","min_digits=1","max_digits=1"]',
    "task.draws=300",
    "task.longest_question=80",
    "task.longest_answer=2",
    "train.max_prompt=80",
    "train.max_response=4",
    "train.overlong_cache=0",
)
"""MetricSums and differences of two digits, such as 6 + 2 or 1 - 8."""
QUICK = ("scale=verl-cpu", "warmup.batch=64", "train.steps=2", "eval.every=1", "compute.sample_groups=8")
PROBED = ("probe.panel=4", "probe.panel_every=1")
QUESTION = re.compile(r"_*State the final answer to the following arithmetic problem: (\d) ([+-]) (\d) =")


def solved(prompt: str) -> str:
    """The correct answer to a prompt."""
    match = QUESTION.fullmatch(prompt)
    assert match, prompt
    first, sign, second = match.groups()
    return str(int(first) + int(f"{sign}{second}"))


def test_a_set_is_trained_on(runs: Runs) -> None:
    runs.add_plug_in("write-a-method", "my_dr_grpo")
    result = runs("train", *TASK, *QUICK, *PROBED, "method=my_dr_grpo")
    assert result.returncode == 0, result.stdout
    folder = runs.folder("my_dr_grpo")
    journal = Journal(folder)
    assert [row["step"] for row in journal.steps()] == [1, 2]
    assert max(row["metrics"]["train/grad_norm"] for row in journal.steps()) > 0
    assert not any("grading/infra_errors" in row["metrics"] for row in journal.steps())
    # The verifier agrees with arithmetic, and verdicts of both kinds occur.
    samples = [row for path in journal.files("samples").values() for row in journal.read(path)]
    assert len(samples) == 2 * 8 * 4
    judged = [row["correct"] for row in samples]
    assert judged == [row["response"].removesuffix("<eos>") == solved(row["prompt"]) for row in samples]
    assert 0 < sum(judged) < len(judged)
    assert not {row["prompt"] for row in journal.groups()} & {row["problem"] for row in journal.eval()}
    assert {row["tier"] for row in journal.eval()} == {"chain_sum"}
    assert nobody_is_left(folder)
    # The panel is resampled in each step.
    assert [row["step"] for row in journal.rerolls()] == [1] * 4 + [2] * 4
