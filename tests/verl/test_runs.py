"""`mcpo train backend=verl` as users meet it: real Ray, real verl, a few steps each on a CPU."""

import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from mcpo_cli.backends.verl import checkpoint, launch
from mcpo_cli.runs.journal import Journal
from mcpo_cli.runs.sanity import evaluated
from tests.verl.conftest import PATIENCE, TOY, Runs, nobody_is_left, phase, status, wait

pytestmark = [pytest.mark.verl, pytest.mark.slow]


def test_a_stop_is_followed_by_a_checkpoint_and_a_dead_process_is_noticed(runs: Runs) -> None:
    settings = (*TOY, "method=spo", "train.steps=30", "compute.checkpoint_every=30")
    first = runs.start("train", *settings, "cluster.loggers=[tensorboard]")
    folder = runs.begun("spo", first)
    wait(lambda: "step 2 of" in phase(folder), first)
    addresses = listening(folder)
    assert addresses
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1"}
    first.send_signal(signal.SIGINT)
    assert first.wait(PATIENCE) == 130
    stopped = status(folder)
    assert stopped["state"] == "interrupted"
    assert stopped["durable_step"] == checkpoint.newest(folder / "checkpoints") >= 2
    # This method remembers prompts, and its memory continues, too.
    assert checkpoint.method_state(folder / "checkpoints", stopped["durable_step"])
    assert nobody_is_left(folder)
    tensorboard_has(Journal(folder), folder / "attempt_1" / "tensorboard")

    second = runs.start("train", *settings)
    wait(lambda: f"step {stopped['durable_step'] + 1} of" in phase(folder), second)
    (sampler,) = [p for p in launch.marked(str(folder)) if _title(p).startswith("ray::Server")]
    sampler.kill()
    said, _ = second.communicate(timeout=PATIENCE)
    assert second.returncode == 1
    assert "died" in said
    assert "if it was memory: lower cluster.max_tokens_per_gpu" in said
    assert str(folder / "attempt_2" / "verl.log") in said
    assert status(folder)["state"] == "failed"
    assert nobody_is_left(folder)


def tensorboard_has(journal: Journal, folder: Path) -> None:
    """Check that TensorBoard has all metrics of all steps, and the scores of all evaluations."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    found = {(name, one.step): one.value for name in events.Tags()["scalars"] for one in events.Scalars(name)}
    wanted = {(name, row["step"]): value for row in journal.steps() for name, value in row["metrics"].items()}
    for step, path in journal.files("eval").items():
        wanted |= {(name, step): value for name, value in evaluated(journal.read(path)).items()}
    assert found == pytest.approx(wanted, nan_ok=True)


def listening(folder: Path) -> set[str]:
    """The addresses that the run's processes listen on, without ranks: torch's rendezvous takes no address."""
    found = set()
    for process in launch.marked(str(folder)):
        with suppress(psutil.Error):
            if "WorkerDict" not in process.name():
                connections = process.net_connections("tcp")
                found |= {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN}
    return found


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def test_groups_are_filtered_until_a_reward_raises_which_fails_the_run(runs: Runs) -> None:
    method = ("method=gspo", "method.dynamic_sampling=true")
    result = runs("train", *TOY, *method, "train.steps=30", "cluster.plugin=tests.verl.faults.raising")
    assert result.returncode == 1
    assert "sampling or grading raised an error" in result.stdout
    assert "the grader is broken" in result.stdout
    folder = runs.folder("gspo")
    assert status(folder)["state"] == "failed"
    assert nobody_is_left(folder)
    batches_were_refilled(Journal(folder))


def batches_were_refilled(journal: Journal) -> None:
    assert journal.steps()
    for row in journal.steps():
        groups = [group for group in journal.groups() if group["step"] == row["step"]]
        kept = [group for group in groups if group["kept"]]
        assert len(kept) == 8
        assert all(0 < group["p"] < 1 for group in kept)
        assert row["metrics"]["sampling/prompts"] == len(groups)
        assert row["metrics"]["sampling/rounds"] == len(groups) / 8
        # Only groups that the filter dropped are mastered; probes still measure them.
        mastered = [group["prompt"] for group in groups if group["p"] == 1]
        again = [roll["prompt"] for roll in journal.rerolls() if roll["origin"] == roll["step"] == row["step"]]
        assert again == mastered[:16]
    # The test needs a filter that dropped groups.
    assert any(group["p"] in (0, 1) and not group["kept"] for group in journal.groups())
