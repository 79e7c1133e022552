"""`mcpo train backend=verl` as users meet it: real Ray, real verl, a few steps each on a processor."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpo_cli.backends.verl import checkpoint, processes
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.tasks.arithmetic import Arithmetic
from tests.verl.conftest import TOY, Runs, nobody_is_left, phase, status, wait

pytestmark = [pytest.mark.verl, pytest.mark.slow]
LOCAL = {
    "train/reward",
    "train/accuracy",
    "train/response_length",
    "train/truncated",
    "train/entropy",
    "train/grad_norm",
    "train/lr",
    "mastery/mastered",
    "mastery/all_wrong",
    "sampling/prompts",
    "sampling/kept",
    "sampling/rounds",
    "perf/seconds",
    "perf/seconds_sample",
    "perf/seconds_update",
    "perf/tokens_per_second",
}
"""Metrics that every step of either backend has."""


def trained(runs: Runs, *settings: str) -> None:
    result = runs("train", *TOY, *settings)
    assert result.returncode == 0, result.stdout


def logged(home: Path, folder: Path, name: str) -> list[tuple[int, float]]:
    """What the MLflow store has of a metric."""
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    (found,) = client.search_runs(experiments, f"tags.`mcpo.run_id` = '{folder.name}'")
    return [(point.step, point.value) for point in client.get_metric_history(found.info.run_id, name)]


def test_grpo_fills_the_journal_and_the_store(runs: Runs) -> None:
    trained(runs, "method=grpo", "train.steps=2")
    folder = runs.folder("grpo")
    journal = Journal(folder)
    steps = journal.steps()
    assert [row["step"] for row in steps] == [1, 2]
    assert all(row["metrics"].keys() >= LOCAL for row in steps)
    # What samples and what trains are the same policy, before and after an update.
    assert all(row["metrics"]["verl/training/rollout_probs_diff_max"] < 1e-4 for row in steps)
    assert len(journal.groups()) == 16
    assert all(row["kept"] for row in journal.groups())
    evaluated = journal.eval()
    assert {(row["step"], row["tier"]) for row in evaluated} == {
        (step, tier) for step in (0, 2) for tier in ("k2-3", "k5-6", "k7-8")
    }
    assert len(evaluated) == 2 * 3 * 6
    assert all(row["n"] == 8 for row in evaluated)
    assert logged(runs.home, folder, "train/accuracy") == [
        (row["step"], row["metrics"]["train/accuracy"]) for row in steps
    ]
    attempt = folder / "attempt_1"
    assert (attempt / "verl.log").stat().st_size
    assert list((attempt / "ray").rglob("raylet.out"))
    assert nobody_is_left(folder)


def test_dapo_refills_its_batches(runs: Runs) -> None:
    trained(runs, "method=dapo", "train.steps=2")
    journal = Journal(runs.folder("dapo"))
    for row in journal.steps():
        groups = [group for group in journal.groups() if group["step"] == row["step"]]
        kept = [group for group in groups if group["kept"]]
        assert len(kept) == 8
        assert all(0 < group["p"] < 1 for group in kept)
        assert row["metrics"]["sampling/prompts"] == len(groups)
        assert row["metrics"]["sampling/rounds"] == len(groups) / 8
        # Only groups that the filter threw away are mastered; probes look at them all the same.
        mastered = [group["prompt"] for group in groups if group["p"] == 1]
        again = [roll["prompt"] for roll in journal.rerolls() if roll["origin"] == roll["step"] == row["step"]]
        assert again == mastered[:16]
    # A filter that found nothing to throw away in two steps would have shown nothing.
    assert any(group["p"] in (0, 1) and not group["kept"] for group in journal.groups())


def test_mcpo_on_two_ranks_is_killed_resumed_exported_and_evaluated(runs: Runs) -> None:
    settings = ("method=mcpo", "train.steps=4", "cluster.gpus=2")
    first = runs.start("train", *TOY, *settings)
    wait(lambda: list(runs.home.glob("runs/mcpo-toy-*/attempt_1")) != [])
    folder = runs.folder("mcpo")
    wait(lambda: status(folder)["durable_step"] == 2)
    wait(lambda: "step 3 of" in phase(folder))
    assert listening(folder) <= {"127.0.0.1", "::ffff:127.0.0.1"}
    os.kill(status(folder)["pid"], signal.SIGKILL)
    assert first.wait(60) != 0
    wait(lambda: nobody_is_left(folder), 30)
    assert runs.json("runs", "show", folder.name)["state"] == "interrupted"

    trained(runs, *settings)
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


def listening(folder: Path) -> set[str]:
    """The addresses that the run's processes listen on, without the ranks: torch's own rendezvous knows no address."""
    found = set()
    for process in processes.marked(str(folder)):
        with suppress(psutil.Error):
            if "WorkerDict" not in process.name():
                connections = process.net_connections("tcp")
                found |= {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN}
    assert found
    return found


def _prompts(folder: Path) -> list[str]:
    """Of all steps, in order: a resumed run goes on where the stream was."""
    return [row["prompt"] for row in Journal(folder).groups()]


def _with_mastered(folder: Path) -> list[Any]:
    found = [row for row in Journal(folder).steps() if row["metrics"]["mastery/mastered"] > 0]
    assert found
    return found


def test_a_stop_is_followed_by_a_checkpoint_and_a_dead_process_is_noticed(runs: Runs) -> None:
    settings = (*TOY, "method=mcpo", "method.hinge=false", "train.steps=30", "compute.checkpoint_every=30")
    first = runs.start("train", *settings)
    wait(lambda: list(runs.home.glob("runs/mcpo-wo-hinge-*/attempt_1")) != [])
    folder = runs.folder("mcpo-wo-hinge")
    wait(lambda: "step 2 of" in phase(folder))
    first.send_signal(signal.SIGINT)
    assert first.wait(120) == 130
    stopped = status(folder)
    assert stopped["state"] == "interrupted"
    assert stopped["durable_step"] == checkpoint.newest(folder / "checkpoints") >= 2
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
