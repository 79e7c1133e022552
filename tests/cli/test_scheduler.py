"""The scheduler with a worker that writes records without training."""

import os
import signal
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from mcpo_cli import backends
from mcpo_cli.config import plan as plans
from mcpo_cli.config.plan import Plan
from mcpo_cli.errors import Interrupted, RunFailed
from mcpo_cli.runs.attempts import owned
from mcpo_cli.runs.journal import Journal
from mcpo_cli.scheduling import scheduler
from mcpo_cli.scheduling.forecast import forecast
from mcpo_cli.scheduling.outcome import RunOutcome
from mcpo_cli.scheduling.process import ForkedWorker
from mcpo_cli.scheduling.progress import View
from mcpo_cli.scheduling.worker import BUSY
from tests.errors import refused

WORKER = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
OFFLINE = ("scale=smoke", "compute.tracking_uri=offline", "compute.parallel=2")


class Recorder:
    """A display that remembers."""

    def __init__(self) -> None:
        self.views: list[View] = []
        self.notes: list[str] = []

    def update(self, view: View) -> None:
        self.views.append(view)

    def note(self, text: str) -> None:
        self.notes.append(text)


def make(*overrides: str) -> Plan:
    return plans.from_overrides([*OFFLINE, *overrides])


def run(plan: Plan) -> tuple[list[RunOutcome], Recorder]:
    recorder = Recorder()
    return scheduler.run(forecast(plan), recorder, WORKER), recorder


def attempts(home: Path, plan: Plan) -> list[int]:
    return [len(Journal(home / "runs" / planned.spec.run_id).attempts()) for planned in plan.runs]


def test_runs_every_cell_and_skips_what_is_done(home: Path) -> None:
    plan = make("seed=0,1,2")
    outcomes, recorder = run(plan)
    assert [outcome.state for outcome in outcomes] == ["done"] * 3
    scores = {f"eval/{tier}/pass_at_1": 0.5 for tier in ("k2-3", "k5-6", "k7-8")}
    assert outcomes[0].metrics == pytest.approx({"train/accuracy": 0.3, "sanity/truncated": 0, **scores})
    assert max(sum(planned.state == "running" for planned in view.runs) for view in recorder.views) == 2
    assert run(plan)[0] == outcomes
    assert attempts(home, plan) == [1, 1, 1]


@pytest.mark.slow
def test_all_arms_of_a_seed_start_before_the_next_seed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make("method=dapo,mcpo", "base_seed=0", "seed=0,1")
    monkeypatch.setenv("FAKE_SECONDS", "0.1")
    assert [planned.spec.seed for planned in plan.runs] == [0, 1, 0, 1]
    _, recorder = run(plan)
    running = [run.planned.spec for view in recorder.views for run in view.runs if run.state == "running"]
    assert [spec.seed for spec in {spec.run_id: spec for spec in running}.values()] == [0, 0, 1, 1]


def test_a_failed_cell_stops_no_other_and_continues_later(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make("seed=0,1,2")
    monkeypatch.setenv("FAKE_FAIL", "0")
    monkeypatch.setenv("FAKE_CRASH", "1")
    with pytest.raises(RunFailed) as caught:
        run(plan)
    message = str(caught.value)
    assert "1 of 3 runs are done" in message
    assert "the learning rate exploded" in message
    assert "a library is missing" in message
    assert str(home / "runs" / plan.runs[0].spec.run_id / "worker.log") in message
    assert [entry["state"] for entry in caught.value.data["runs"]] == ["failed", "failed", "done"]
    monkeypatch.delenv("FAKE_FAIL")
    monkeypatch.delenv("FAKE_CRASH")
    assert {outcome.state for outcome in run(plan)[0]} == {"done"}
    assert attempts(home, plan) == [2, 1, 1]


def test_a_damaged_run_stops_no_other(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make("seed=0,1")
    monkeypatch.setenv("FAKE_FAIL", "0,1")
    with pytest.raises(RunFailed):
        run(plan)
    monkeypatch.delenv("FAKE_FAIL")
    monkeypatch.setenv("FAKE_CRASH", "0")
    (home / "runs" / plan.runs[0].spec.run_id / "attempt_1" / "status.json").write_text("{")
    with refused("run_failed", "1 of 2 runs are done", "a library is missing"):
        run(plan)


def test_the_runs_after_a_killed_fork_server_get_another_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, each of them ended at once, with the signal of the server. Workers without settings end by themselves."""
    monkeypatch.setattr(type(backends.get("local")), "preloads", "json")
    with closing(scheduler._Scheduler(forecast(make("seed=0,1")), Recorder(), ())) as of:
        first = of._worker(of.jobs[0])
        assert isinstance(first, ForkedWorker)
        os.kill(first.server._process.pid, signal.SIGKILL)
        while not first.poll():
            time.sleep(0.05)
        second = of._worker(of.jobs[1])
        assert isinstance(second, ForkedWorker)
        assert second.server is not first.server
        assert second.code is None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_cleanly_and_a_second_start_continues(
    number: int, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make("seed=0,1,2", "train.steps=6")
    monkeypatch.setenv("FAKE_SECONDS", "0.4")
    signal_when(home, plan, number, times=1)
    with pytest.raises(Interrupted) as caught:
        run(plan)
    assert caught.value.fix == plan.command
    assert [entry["state"] for entry in caught.value.data["runs"]] == ["interrupted", "interrupted", "planned"]
    monkeypatch.delenv("FAKE_SECONDS")
    outcomes, _ = run(plan)
    assert {outcome.state for outcome in outcomes} == {"done"}
    assert attempts(home, plan) == [2, 2, 1]
    assert all(outcome.metrics["train/accuracy"] == pytest.approx(0.6) for outcome in outcomes)


@pytest.mark.slow
def test_a_second_signal_kills(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make("seed=0", "train.steps=3")
    monkeypatch.setenv("FAKE_SECONDS", "60")
    signal_when(home, plan, signal.SIGINT, times=2)
    began = time.monotonic()
    with pytest.raises(Interrupted):
        run(plan)
    assert time.monotonic() - began < 30


def signal_when(home: Path, plan: Plan, number: int, times: int) -> None:
    """Signal this process once the first runs of `plan` have begun, and again half a second later."""

    def send() -> None:
        while not any(attempts(home, plan)):
            time.sleep(0.05)
        for _ in range(times):
            time.sleep(0.5)
            os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()


@pytest.mark.slow
def test_waits_for_a_run_that_another_process_trains(home: Path) -> None:
    plan = make("seed=0,1")
    folder = home / "runs" / plan.runs[0].spec.run_id
    began = threading.Event()

    def hold() -> None:
        with owned(folder):
            began.set()
            time.sleep(0.5)

    other = threading.Thread(target=hold)
    other.start()
    began.wait()
    outcomes, recorder = run(plan)
    other.join()
    assert {outcome.state for outcome in outcomes} == {"done"}
    first_done = next(view for view in recorder.views if any(planned.state == "done" for planned in view.runs))
    assert first_done.runs[0].state == "running"


@pytest.mark.slow
def test_prefers_a_cell_whose_base_policy_nobody_makes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "0.1")
    plan = make("seed=0,1", "method=dapo,mcpo")
    bases = [planned.spec.base_id for planned in plan.runs]
    assert bases[0] == bases[1] != bases[2]
    _, recorder = run(plan)
    first = next(view for view in recorder.views if sum(planned.state == "running" for planned in view.runs) == 2)
    assert [planned.state for planned in first.runs] == ["running", "planned", "running", "planned"]


def test_nothing_starts_when_the_store_cannot_be_reached(home: Path) -> None:
    plan = plans.from_overrides(["scale=smoke", "compute.tracking_uri=http://127.0.0.1:1"])
    with refused("bad_input"):
        run(plan)
    assert not (home / "runs").exists()


def test_workers_get_their_threads_and_a_session_of_their_own(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text("import os, sys; sys.exit(f\"{os.environ['OMP_NUM_THREADS']} {os.getsid(0) == os.getpid()}\")")
    with refused("run_failed", "3 True"):
        scheduler.run(forecast(make("compute.threads=3")), Recorder(), (sys.executable, str(script)))


def test_a_killed_worker_says_so(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text("import os; os.kill(os.getpid(), 9)")
    with refused("run_failed", "SIGKILL"):
        scheduler.run(forecast(make()), Recorder(), (sys.executable, str(script)))


def test_a_run_that_passes_a_limit_warns_once_and_goes_on(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make("seed=0")
    monkeypatch.setenv("FAKE_TRUNCATED", "0.5")
    outcomes, recorder = run(plan)
    assert [outcome.state for outcome in outcomes] == ["done"]
    assert len(recorder.notes) == 1
    assert recorder.notes[0].startswith(f"{plan.runs[0].spec.run_id}: warning: many responses are cut")
    assert "sanity/truncated 0.5" in recorder.notes[0]
    assert run(plan)[1].notes == []


@pytest.mark.slow
def test_a_worker_that_came_second_is_no_failure(home: Path, tmp_path: Path) -> None:
    """Two schedulers started a run at once: the slower worker reports it, and its scheduler follows the run."""
    script = tmp_path / "worker.py"
    script.write_text(
        "import pathlib, runpy, sys\n"
        f"came = pathlib.Path({str(tmp_path / 'came')!r})\n"
        "if not came.exists():\n"
        "    came.touch()\n"
        f"    sys.exit({BUSY})\n"
        f"runpy.run_path({WORKER[1]!r}, run_name='__main__')\n"
    )
    plan = make()
    (outcome,) = scheduler.run(forecast(plan), Recorder(), (sys.executable, str(script)))
    assert outcome.state == "done"
    assert (tmp_path / "came").exists()
    assert attempts(home, plan) == [1]
