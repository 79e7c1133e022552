"""`mcpo train backend=verl` as users meet it: real Ray, real verl, a few steps each on a CPU."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from mcpo_cli.backends.drawing import Drawing, TrainingStream
from mcpo_cli.backends.verl import checkpoint, processes
from mcpo_cli.config import load
from mcpo_cli.measures.base import by_step
from mcpo_cli.records import GroupRow
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.trackers.rows import evaluation_metrics
from tests.verl.conftest import PATIENCE, ROOT, TOY, Runs, nobody_is_left, phase, status, wait

pytestmark = [pytest.mark.verl, pytest.mark.slow]


def test_a_stop_is_followed_by_a_checkpoint_and_a_dead_process_is_noticed(runs: Runs) -> None:
    """Its method and its sampler, the plug-in that a page of the documentation writes, remember prompts."""
    runs.add_plug_in("write-a-sampler", "my_second_chance")
    chosen = ("method=spo", "sampler=my_second_chance", "task.pool=64")
    settings = (*TOY, *chosen, "train.steps=30", "compute.checkpoint_every=30")
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
    assert checkpoint.method_state(folder / "checkpoints", stopped["durable_step"])
    assert nobody_is_left(folder)
    tensorboard_has(Journal(folder), folder / "attempt_1" / "tensorboard")

    second = runs.start("train", *settings)
    wait(lambda: f"step {stopped['durable_step'] + 4} of" in phase(folder), second)
    (sampler,) = [p for p in processes.marked(str(folder)) if _title(p).startswith("ray::Server")]
    sampler.kill()
    said, _ = second.communicate(timeout=PATIENCE)
    assert second.returncode == 1
    assert "died" in said
    assert "if it was memory: lower cluster.max_tokens_per_gpu" in said
    assert str(folder / "attempt_2" / "verl.log") in said
    assert status(folder)["state"] == "failed"
    assert nobody_is_left(folder)
    what_nobody_solved_before_the_stop_comes_back_after_it(runs, folder, stopped["durable_step"])


def what_nobody_solved_before_the_stop_comes_back_after_it(runs: Runs, folder: Path, stopped: int) -> None:
    # This process has already searched for plug-ins.
    code = f"from pathlib import Path; from {__name__} import drawn_as_locally; drawn_as_locally(Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=runs.env, check=True)
    steps = by_step(Journal(folder).groups())
    assert list(steps) == list(range(1, len(steps) + 1))
    hard = {step: {row["prompt"] for row in steps[step] if row["p"] == 0} for step in (stopped - 1, stopped)}
    assert any(hard[step] & {row["prompt"] for row in steps[step + 2]} for step in hard)


def drawn_as_locally(folder: Path) -> Mapping[int, list[GroupRow]]:
    """The groups of each step, after checking that the local engine draws and keeps the same for equal accuracies."""
    spec = load.from_dict(read_json(folder / "spec.json"))
    stream = TrainingStream(spec.task.problems(spec.train, lambda messages: 1), spec.seed)
    cursor, state = 0, dict[str, Sequence[float]]()
    found = by_step(Journal(folder).groups())
    for step, rows in found.items():
        drawing, drawn = Drawing(spec, stream, step, cursor, state), list[str]()
        while not drawing.is_full:
            problems = drawing.draw()
            drawing.add([row["p"] for row in rows[len(drawn) : len(drawn) + len(problems)]])
            drawn += [problem.text for problem in problems]
        cursor, state = drawing.cursor, dict(drawing.state())
        assert [row["prompt"] for row in rows] == drawn
        assert [index for index, row in enumerate(rows) if row["kept"]] == drawing.batch
    return found


def tensorboard_has(journal: Journal, folder: Path) -> None:
    """Check that TensorBoard has all metrics of all steps, and the scores of all evaluations."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    found = {(name, one.step): one.value for name in events.Tags()["scalars"] for one in events.Scalars(name)}
    wanted = {(name, row["step"]): value for row in journal.steps() for name, value in row["metrics"].items()}
    for step, path in journal.files("eval").items():
        wanted |= {(name, step): value for name, value in evaluation_metrics(journal.read(path)).items()}
    assert found == pytest.approx(wanted, nan_ok=True)


def listening(folder: Path) -> set[str]:
    """The addresses that the run's processes listen on, without ranks: torch's rendezvous takes no address."""
    found = set()
    for process in processes.marked(str(folder)):
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


def test_a_filter_throws_away_what_it_would_locally_until_a_reward_raises_which_fails_the_run(runs: Runs) -> None:
    sampler = ("sampler=greso", "task.pool=64", "train.steps=30", "train.max_refills=20")
    correction = ("train.correction=sequence-mask", "train.off_policy_mask=0.5")
    broken = "cluster.plugin=tests.verl.faults.raising"
    result = runs("train", *TOY, "method=gspo", *sampler, *correction, broken)
    assert result.returncode == 1
    assert "sampling or grading raised an error" in result.stdout
    assert "the grader is broken" in result.stdout
    folder = runs.folder("gspo")
    assert status(folder)["state"] == "failed"
    assert nobody_is_left(folder)
    journal, steps = Journal(folder), drawn_as_locally(folder)
    # Several rounds of 8 prompts each.
    assert any(len(rows) > 8 and not all(row["kept"] for row in rows) for rows in steps.values())
    assert journal.steps()
    for row in journal.steps():
        assert row["metrics"]["sampling/prompts"] == len(steps[row["step"]])
    nearly_nothing_is_corrected(journal)


def nearly_nothing_is_corrected(journal: Journal) -> None:
    """The engines of the tests round alike up to 1e-4: no weight is far from 1, and none is cut."""
    for metrics in (row["metrics"] for row in journal.steps()):
        assert metrics["rollout_corr/logp_difference"] < 1e-4
        assert metrics["rollout_corr/weight"] == pytest.approx(1, abs=1e-2)
        assert metrics["rollout_corr/masked"] == 0
