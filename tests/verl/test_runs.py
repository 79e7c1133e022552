"""`mcpo train backend=verl` as users meet it: real Ray, real verl, a few steps each on a processor."""

import signal

import psutil
import pytest

from mcpo_cli.backends.verl import checkpoint, processes
from mcpo_cli.runs.journal import Journal
from tests.verl.conftest import PATIENCE, TOY, Runs, nobody_is_left, phase, status, wait

pytestmark = [pytest.mark.verl, pytest.mark.slow]


def test_a_stop_is_followed_by_a_checkpoint_and_a_dead_process_is_noticed(runs: Runs) -> None:
    settings = (*TOY, "method=spo", "train.steps=30", "compute.checkpoint_every=30")
    first = runs.start("train", *settings)
    folder = runs.begun("spo", first)
    wait(lambda: "step 2 of" in phase(folder), first)
    first.send_signal(signal.SIGINT)
    assert first.wait(PATIENCE) == 130
    stopped = status(folder)
    assert stopped["state"] == "interrupted"
    assert stopped["durable_step"] == checkpoint.newest(folder / "checkpoints") >= 2
    # This method remembers prompts: what it knows of them goes on, too.
    assert checkpoint.method_state(folder / "checkpoints", stopped["durable_step"])
    assert nobody_is_left(folder)

    second = runs.start("train", *settings)
    wait(lambda: f"step {stopped['durable_step'] + 1} of" in phase(folder), second)
    (sampler,) = [p for p in processes.marked(str(folder)) if _title(p).startswith("ray::Server")]
    sampler.kill()
    said, _ = second.communicate(timeout=PATIENCE)
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
    result = runs("train", *TOY, "method=mcpo", "method.reweight=false", "cluster.plugin=tests.verl.faults.raising")
    assert result.returncode == 1
    assert "sampling or grading raised an error" in result.stdout
    assert "the grader is broken" in result.stdout
    folder = runs.folder("mcpo-wo-reweight")
    assert status(folder)["state"] == "failed"
    assert not Journal(folder).eval()
    assert nobody_is_left(folder)
