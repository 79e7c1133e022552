"""The parts around verl's trainer that need no verl: checkpoints, messages of a crash, processes, rewards, the loss."""

import asyncio
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from mcpo_cli.backends.verl import checkpoint, launch, processes, reward
from mcpo_cli.backends.verl.batch import Group, Prompt, end_tokens, graded
from mcpo_cli.backends.verl.launch import Channel
from mcpo_cli.backends.verl.loss import merged, noise_floor
from mcpo_cli.config.load import load
from mcpo_cli.data.base import Problem
from mcpo_cli.errors import ConfigError, Interrupted
from mcpo_cli.grading import Grade
from mcpo_cli.grading.base import Status
from tests.fakes import ThisProcess
from tests.models import words


def write_checkpoint(root: Path, step: int) -> Path:
    folder = checkpoint.folder(root, step)
    (folder / "actor").mkdir(parents=True)
    (folder / "actor" / "model_world_size_1_rank_0.pt").write_bytes(b"weights" * step)
    (folder / "data.pt").write_bytes(b"place")
    return folder


def sealed(root: Path, *steps: int) -> None:
    for step in steps:
        write_checkpoint(root, step)
        checkpoint.seal(root, step)


def test_the_newest_two_sealed_checkpoints_are_kept(tmp_path: Path) -> None:
    sealed(tmp_path, 2, 9, 10)
    assert checkpoint.complete(tmp_path) == [9, 10]
    assert not checkpoint.folder(tmp_path, 2).exists()


def test_a_checkpoint_that_is_not_whole_is_passed_over(tmp_path: Path) -> None:
    sealed(tmp_path, 4, 6)
    write_checkpoint(tmp_path, 8)  # killed while it was written
    assert checkpoint.newest(tmp_path) == 6
    (checkpoint.folder(tmp_path, 6) / "data.pt").write_bytes(b"cut")
    assert checkpoint.newest(tmp_path) == 4
    shutil.rmtree(checkpoint.folder(tmp_path, 4) / "actor")
    assert checkpoint.newest(tmp_path) == 0


def test_verl_is_pointed_at_the_checkpoint_that_the_attempt_starts_after_or_at_none(tmp_path: Path) -> None:
    pointer = tmp_path / "latest_checkpointed_iteration.txt"
    sealed(tmp_path, 4, 6)
    pointer.write_text("6")  # verl wrote it; rows up to that step were lost
    checkpoint.choose(tmp_path, 4, ranks=1)
    assert pointer.read_text() == "4"
    assert checkpoint.complete(tmp_path) == [4]
    checkpoint.choose(tmp_path, 0, ranks=1)
    assert not pointer.exists()
    assert not checkpoint.folder(tmp_path, 4).exists()


def test_a_checkpoint_that_does_not_fit_makes_room_and_the_one_before_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed(tmp_path, 2)
    write_checkpoint(tmp_path, 4)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3 * 2**20))
    error = checkpoint.failed(tmp_path, 4, OSError(28, "No space left on device"))
    assert f"step 4 could not be written to {tmp_path} (free space on that disk: 3 MiB)" in error.message
    assert "No space left on device" in error.message
    assert "newest complete one: step 2" in error.message
    assert not checkpoint.folder(tmp_path, 4).exists()
    assert checkpoint.newest(tmp_path) == 2


def test_a_checkpoint_of_another_number_of_gpus_is_refused(tmp_path: Path) -> None:
    sealed(tmp_path, 4)
    with pytest.raises(ConfigError) as error:
        checkpoint.choose(tmp_path, 4, ranks=2)
    assert error.value.fix == "cluster.nodes and cluster.gpus with the product 1"
    assert checkpoint.complete(tmp_path) == [4]


def test_a_checkpoint_of_another_run_is_passed_over(tmp_path: Path) -> None:
    sealed(tmp_path / "seed0" / "checkpoints", 4)
    shutil.copytree(tmp_path / "seed0", tmp_path / "seed1")
    assert checkpoint.complete(tmp_path / "seed0" / "checkpoints") == [4]
    assert checkpoint.complete(tmp_path / "seed1" / "checkpoints") == []


LOG = """\
\x1b[36m(AgentLoopWorker pid=71)\x1b[0m ERROR:2026-01-01:Error in _run_prompt for uid=1
\x1b[36m(AgentLoopWorker pid=71)\x1b[0m ZeroDivisionError: the grader is broken
\x1b[36m(AgentLoopWorker pid=72)\x1b[0m ZeroDivisionError: the grader is broken
Error executing job with overrides: ['data.seed=1']
  File "trainer.py", line 1, in fit
ray.exceptions.RayTaskError(RunFailed): \x1b[36mray::Runner.run()\x1b[39m (pid=70)
mcpo_cli.errors.RunFailed: sampling or grading raised an error
"""


def test_the_last_errors_of_a_log_are_said_once_and_bare() -> None:
    assert launch.last_errors(LOG) == [
        "ZeroDivisionError: the grader is broken",
        "mcpo_cli.errors.RunFailed: sampling or grading raised an error",
    ]
    assert launch.last_errors("Training Progress: 10%\nErrors: none\n") == []


def test_worker_and_trainer_hear_each_other(tmp_path: Path) -> None:
    worker, trainer = Channel(tmp_path), Channel(tmp_path)
    assert worker.progress() == {"phase": "starting", "durable_step": None}
    trainer.tell("step 3 of 9", 2)
    assert worker.progress() == {"phase": "step 3 of 9", "durable_step": 2}
    assert not trainer.asked_to_stop()
    worker.ask_to_stop()
    assert trainer.asked_to_stop()
    assert worker.ending() is None
    trainer.ended(Interrupted("stopped after step 3 of 9"))
    assert worker.ending() == {"kind": "interrupted", "message": "stopped after step 3 of 9", "fix": None}


def sleeper(mark: str) -> "subprocess.Popen[bytes]":
    """A process that ignores a polite request, as a hanging worker of Ray's does."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, processes.MARK: mark}, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_all_processes_of_a_run_end_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.2)
    mine, other = sleeper("/runs/a"), sleeper("/runs/b")
    try:
        assert [process.pid for process in processes.marked("/runs/a")] == [mine.pid]
        processes.end("/runs/a")
        assert mine.wait(5) < 0
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def scored(response: str, gold: str, grader: str, **info: object) -> dict[str, object]:
    return asyncio.run(reward.compute_score("data", response, gold, {"problem": "1 + 2 _ =", "grader": grader, **info}))


@pytest.mark.parametrize("status", ["wrong", "unevaluated", "unparsable", "timeout", "infra_error"])
def test_an_answer_that_is_not_right_scores_nothing_and_says_why(
    status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer in (None, "41"):
        verdict = ThisProcess(1).submit(Grade, status, answer, "why")
        pool = SimpleNamespace(submit=lambda gold, response, verdict=verdict: verdict)
        monkeypatch.setattr(reward, "_pool", lambda _, pool=pool: pool)
        expected = {"score": 0.0, "acc": 0.0, "status": status, "detail": "why", "answer": answer or ""}
        assert scored("42", "42", "math_verify") == expected


@pytest.mark.parametrize(
    ("response", "right"), [(" 3 = 5\nQuestion: 1", 1.0), ("3 = 5", 1.0), ("\n3 = 5", 0.0), ("3 = 5 Question: 1", 0.0)]
)
def test_a_response_is_graded_up_to_its_stop_string(response: str, right: float) -> None:
    for strings in (["\n"], np.array(["\n"], dtype=object)):
        assert scored(response, "3 = 5", "trace", stops=strings)["score"] == right


@pytest.mark.parametrize(("stops", "sent"), [(["\n"], True), (None, False)])
def test_the_rollout_engine_is_given_the_tokens_of_stop_strings(
    stops: list[str] | None, sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a replacement for verl's agent loop, which is not installed here."""
    loop = ModuleType("verl.experimental.agent_loop.agent_loop")
    vars(loop).update(AgentLoopBase=object, AgentLoopOutput=SimpleNamespace, register=lambda _: lambda cls: cls)
    for name in ("verl", "verl.experimental", "verl.experimental.agent_loop"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, loop.__name__, loop)
    monkeypatch.delitem(sys.modules, "mcpo_cli.backends.verl.agent", raising=False)
    agent = importlib.import_module("mcpo_cli.backends.verl.agent")
    monkeypatch.delitem(sys.modules, "mcpo_cli.backends.verl.agent")
    asked = []

    async def generate(sampling_params: dict[str, object], **_request: object) -> SimpleNamespace:
        asked.append(sampling_params)
        return SimpleNamespace(token_ids=[5, 6], log_probs=None, extra_fields={})

    own, tokenizer = object.__new__(agent.OneTurn), words()
    own.tokenizer, own.rollout_config = tokenizer, SimpleNamespace(response_length=8)
    own.server_manager = SimpleNamespace(generate=generate)
    row = {"raw_prompt": [{"role": "user", "content": "1 + 1"}], "seed": 3, "session_id": 0}
    asyncio.run(own.run({"temperature": 1.0}, **row, extra_info={"problem": "1 + 1", "stops": stops}))
    newline = tokenizer("\n")["input_ids"][0]
    assert asked[0].get("stop_token_ids") == ([newline] if sent else None)


def test_a_response_that_a_stop_string_ends_is_not_truncated() -> None:
    (task,) = {spec.task for spec in load(["task=sums", "task.style=plain", "model=smollm2-135m", "scale=laptop"])}
    tokenizer = words()
    newline = tokenizer("\n")["input_ids"][0]
    ends = end_tokens(task, tokenizer)
    assert {newline, tokenizer.eos_token_id} <= set(ends)
    assert len(ends) == 2
    prompt, verdict = Prompt(0, Problem("1 + 1 =", "2"), "train"), Grade("wrong", None, "")
    tokens = [torch.tensor([7, last]) for last in (newline, tokenizer.eos_token_id, 7)]
    group = Group(prompt, tokens, [0.0] * 3, [verdict] * 3, [-1.0] * 3, [1.0] * 3)
    assert graded([group], ends, 1.0).ended_PG.tolist() == [[True, True, False]]


@pytest.mark.slow
def test_restating_the_problem_is_not_rewarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward, "WORKERS", 1)
    with reward._pool.__wrapped__("math_verify") as pool:
        monkeypatch.setattr(reward, "_pool", lambda _: pool)
        restated = scored(r"\boxed{\gcd(84,126)}", "42", "math_verify")
        evaluated = scored(r"\boxed{\frac{84}{2}}", "42", "math_verify")
    assert (restated["score"], restated["status"]) == (0.0, "unevaluated")
    assert (evaluated["score"], evaluated["status"]) == (1.0, "correct")


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_probability_of_a_response_is_known_at_temperature_1(temperature: float) -> None:
    """As in the local engine, whose log-probabilities are also those at temperature 1."""
    prompt, right = Prompt(0, Problem("1 + 2 _ =", "3"), "k2-3"), Grade("correct", "3")
    group = Group(prompt, [torch.tensor([4, 9])] * 2, [1.0, 1.0], [right, right], [-0.5, -0.5], [0.1, 0.1])
    logp_PG = graded([group], {9}, temperature).logp_PG
    assert logp_PG is None if temperature != 1 else torch.equal(logp_PG, torch.full((1, 2), -0.5).double())


def test_the_state_of_a_method_is_under_the_seal_of_its_step(tmp_path: Path) -> None:
    """Written and read to the bit, also a transposed tensor, which is not contiguous in memory."""
    state = {"mean": torch.tensor([1 / 3], dtype=torch.float64), "table": torch.arange(6).view(2, 3).T}
    write_checkpoint(tmp_path, 4)
    checkpoint.save_method_state(tmp_path, 4, state)
    checkpoint.seal(tmp_path, 4)
    found = checkpoint.method_state(tmp_path, 4)
    assert found.keys() == state.keys()
    for name, tensor in state.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
    # Its loss would not be noticed if the seal did not cover it.
    assert checkpoint.complete(tmp_path) == [4]
    (checkpoint.folder(tmp_path, 4) / "method.safetensors").unlink()
    assert checkpoint.complete(tmp_path) == []


def test_a_method_without_a_state_leaves_no_file(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 4)
    checkpoint.save_method_state(tmp_path, 4, {})
    assert checkpoint.method_state(tmp_path, 4) == {}
    assert not list(tmp_path.rglob("method*"))


def test_the_noise_floor_is_the_largest_drift_before_any_weight_has_moved() -> None:
    reports = [{"group": group, "drift": drift} for group, drift in ((5, 0.9), (0, 0.01), (3, 0.02), (4, 0.8))]
    assert noise_floor(reports, prompts=4) == 0.02


def test_reports_of_the_loss_are_merged_a_mini_batch_at_a_time() -> None:
    """Two mini-batches of four prompts, each in micro-batches and on ranks that report in any order."""
    reports = [(5, [1.0, 2.0], [6]), (0, [3.0, 4.0], []), (7, [5.0, 6.0], [6, 7]), (3, [7.0, 8.0], [3])]
    found = merged(
        [
            {"group": group, "sums": {"x": pair}, "prompts": {"felt": [felt, [group, *felt]]}}
            for group, pair, felt in reports
        ],
        prompts=4,
    )
    assert [(sums.pairs, sums.prompts) for sums in found] == [
        ({"x": [10.0, 12.0]}, {"felt": ({3}, {0, 3})}),
        ({"x": [6.0, 8.0]}, {"felt": ({6, 7}, {5, 6, 7})}),
    ]
