"""Workers that leak, hang or take too long end as failed runs that name the exceeded limit and can be continued."""

from pathlib import Path

import pytest

from mcpo_cli.config import plan as plans
from mcpo_cli.config.plan import Plan
from mcpo_cli.errors import RunFailed
from mcpo_cli.home import run_dir
from mcpo_cli.runs.attempts import state
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.scheduling import limits, scheduler
from mcpo_cli.scheduling.forecast import forecast
from mcpo_cli.scheduling.process import LocalWorker
from mcpo_cli.scheduling.progress import Progress
from tests.cli.test_scheduler import WORKER, Recorder
from tests.errors import refused

OFFLINE = ("scale=smoke", "compute.tracking_uri=offline", "train.steps=3")


def make(*overrides: str) -> Plan:
    return plans.from_overrides([*OFFLINE, *overrides])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("illness", "limit", "what"),
    [
        ("hangs", "stall_limit=0.1", "no progress for compute.stall_limit=0.1 minutes in phase: step 2"),
        ("hangs", "time_limit=0.1", "it took longer than compute.time_limit=0.1 minutes"),
        ("leaks", "memory_limit=0.5", "more than compute.memory_limit=0.5"),
        ("a child leaks", "memory_limit=0.5", "more than compute.memory_limit=0.5"),
    ],
)
def test_a_sick_worker_is_ended(
    illness: str, limit: str, what: str, mcpo_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make(f"compute.{limit}")
    spec = plan.runs[0].spec
    folder = run_dir(spec.run_id)
    monkeypatch.setenv("FAKE_ILLNESS", illness)
    with pytest.raises(RunFailed) as caught:
        scheduler.run(forecast(plan), Recorder(), WORKER)
    name = limit.partition("=")[0]
    assert what in caught.value.message
    assert f"fix: raise compute.{name} (0: none)" in str(caught.value)
    assert state(folder, spec) == "failed"
    status = read_json(folder / "attempt_1" / "status.json")
    assert what in status["error"]
    kept = Journal(folder).steps()
    assert [row["step"] for row in kept] == [1]
    monkeypatch.setenv("FAKE_ILLNESS", "")
    (outcome,) = scheduler.run(forecast(make()), Recorder(), WORKER)
    assert outcome.state == "done"
    rows = Journal(folder).steps()
    assert (len(rows), rows[0]) == (3, kept[0])


def test_a_phase_or_a_step_is_a_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The first reading is the start of the watch.
    clock = iter([0.0, 0.0, 50.0, 100.0, 150.0, 161.0])
    monkeypatch.setattr(limits.time, "monotonic", lambda: next(clock))
    (run,) = make("compute.stall_limit=1").runs
    watch = limits.Watch(run.spec.compute, LocalWorker(("true",), {}, tmp_path / "log"))
    for progress in (Progress(1, "a"), Progress(2, "a"), Progress(2, "b"), Progress(2, "b")):
        assert watch.exceeded(progress) is None
    said = watch.exceeded(Progress(2, "b"))
    assert said is not None
    assert said.startswith("no progress for compute.stall_limit=1 minutes in phase: b")


def test_limits_are_not_for_jobs_of_a_cluster() -> None:
    (run,) = make("cluster.launcher=slurm", "compute.time_limit=5").runs
    with refused("bad_input", "compute.time_limit=5") as caught:
        limits.check_limits(run.spec)
    assert "cluster.hours" in str(caught.value.fix)
