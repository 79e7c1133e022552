"""`mcpo train backend=verl` as users meet it: real Ray, real verl, a few steps each on a processor."""

import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpo_cli.backends.verl import checkpoint, processes
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.tasks.arithmetic import Arithmetic
from tests.verl.conftest import TOY, Resumed, Runs, logged, nobody_is_left, phase, status, wait

pytestmark = [pytest.mark.verl, pytest.mark.slow]


def test_a_run_on_two_ranks_is_killed_resumed_exported_and_evaluated(resumed: Resumed) -> None:
    runs, folder = resumed.runs, resumed.folder
    assert resumed.listening
    assert resumed.listening <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert resumed.state == "interrupted"
    assert [row["step"] for row in Journal(folder).steps()] == [1, 2, 3, 4]
    assert read_json(folder / "attempt_2" / "status.json")["start_step"] == 2
    assert _prompts(folder) == [problem.text for problem in Arithmetic(max_ops=2).training(0, 0, 32)]
    assert all("hinge/tokens_active" in row["metrics"] for row in _with_mastered(folder))
    assert [step for step, _ in logged(runs.home, folder, "train/accuracy")] == [1, 2, 3, 4]

    exported = runs.json("export", folder.name, "--step", "2")["folder"]
    newest = folder / "attempt_2" / "policy"
    benchmark = ("--benchmarks", "arithmetic", "--limit", "6", "max_tokens=20", "grading.timeout=60")
    for model in (exported, folder.name):
        result = runs.json("evaluate", model, *benchmark)
        assert result["benchmarks"].keys() == {"k2-3", "k5-6", "k7-8"}
    assert (newest / "model.safetensors").stat().st_size == (Path(exported) / "model.safetensors").stat().st_size


def _prompts(folder: Path) -> list[str]:
    """Of all steps, in order: a resumed run goes on where the stream was."""
    return [row["prompt"] for row in Journal(folder).groups()]


def _with_mastered(folder: Path) -> list[Any]:
    found = [row for row in Journal(folder).steps() if row["metrics"]["mastery/mastered"] > 0]
    assert found
    return found


def test_a_stop_is_followed_by_a_checkpoint_and_a_dead_process_is_noticed(runs: Runs) -> None:
    settings = (*TOY, "method=spo", "train.steps=30", "compute.checkpoint_every=30")
    first = runs.start("train", *settings)
    wait(lambda: list(runs.home.glob("runs/spo-toy-*/attempt_1")) != [])
    folder = runs.folder("spo")
    wait(lambda: "step 2 of" in phase(folder))
    first.send_signal(signal.SIGINT)
    assert first.wait(120) == 130
    stopped = status(folder)
    assert stopped["state"] == "interrupted"
    assert stopped["durable_step"] == checkpoint.newest(folder / "checkpoints") >= 2
    # This method remembers prompts: what it knows of them goes on, too.
    assert checkpoint.method_state(folder / "checkpoints", stopped["durable_step"])
    assert nobody_is_left(folder)

    second = runs.start("train", *settings)
    wait(lambda: f"step {stopped['durable_step'] + 1} of" in phase(folder))
    (sampler,) = [p for p in processes.marked(str(folder)) if _title(p).startswith("ray::Server")]
    sampler.kill()
    said, _ = second.communicate(timeout=120)
    assert second.returncode == 1
    assert "died" in said
    assert "if it was memory: lower cluster.max_tokens_per_gpu" in said
    assert str(folder / "attempt_2" / "verl.log") in said
    assert status(folder)["state"] == "failed"
    assert nobody_is_left(folder)


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def test_a_reward_that_raises_fails_the_run(runs: Runs) -> None:
    # A run id of its own, from the base policy that is there already.
    result = runs("train", *TOY, "method=mcpo", "method.reweight=false", "cluster.plugin=tests.verl.faults.raising")
    assert result.returncode == 1
    assert "sampling or grading raised an error" in result.stdout
    assert "the grader is broken" in result.stdout
    folder = runs.folder("mcpo-wo-reweight")
    assert status(folder)["state"] == "failed"
    assert not Journal(folder).eval()
    assert nobody_is_left(folder)
