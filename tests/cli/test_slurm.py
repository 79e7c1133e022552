"""Runs as jobs of SLURM. SLURM is not installed here: jobs run through submitit's local executor, or meet programs
that only record their calls.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import submitit

from mcpo_cli.config import plan as plans
from mcpo_cli.config.load import from_dict, load
from mcpo_cli.config.plan import Plan
from mcpo_cli.errors import Interrupted
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.scheduling import scheduler, slurm
from mcpo_cli.scheduling.forecast import forecast
from mcpo_cli.scheduling.slurm import SlurmTask, SlurmWorker
from tests.cli.conftest import InProcess
from tests.cli.test_scheduler import WORKER, Recorder
from tests.errors import refused

JOBS = ("scale=smoke", "compute.tracking_uri=offline", "cluster.launcher=slurm")
SETTINGS = ("cluster.partition=gpu", "cluster.account=a b", "cluster.nodes=2", "cluster.gpus=4", "cluster.hours=12")


def program(folder: Path, name: str, body: str) -> Path:
    """An executable shell script; `$CALLS` is a file in the same folder."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/bash\nCALLS={folder / 'calls'}\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the PATH with SLURM's programs, which report every submitted job as failed."""
    folder = tmp_path / "bin"
    program(folder, "sbatch", 'cp "$1" "$CALLS.sbatch"; echo "Submitted batch job 17"')
    program(folder, "sacct", "printf 'JobID|State|NodeList\\n17|NODE_FAIL|node1\\n'")
    program(folder, "scancel", 'echo "scancel $*" >> "$CALLS"')
    program(folder, "srun", "exit 0")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(submitit.SlurmJob, "_results_timeout_s", 0)
    submitit.SlurmJob.watcher.clear()
    return folder


@pytest.fixture
def local(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs run on this machine."""
    assert cluster.exists()
    monkeypatch.setattr(slurm, "EXECUTOR", "local")


def make(*overrides: str) -> Plan:
    return plans.from_overrides([*JOBS, *overrides])


def journal(home: Path, plan: Plan) -> Journal:
    return Journal(home / "runs" / plan.runs[0].spec.run_id)


def after_steps(home: Path, plan: Plan, act: Callable[[], None]) -> None:
    """Call `act` once the first run of `plan` has recorded two steps."""

    def wait() -> None:
        folder = home / "runs" / plan.runs[0].spec.run_id
        while not folder.exists() or len(Journal(folder).steps()) < 2:
            time.sleep(0.05)
        act()

    threading.Thread(target=wait, daemon=True).start()


@pytest.mark.slow
@pytest.mark.usefixtures("local")
def test_a_job_that_goes_back_into_the_queue_resumes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "0.4")
    plan = make("train.steps=6")

    def preempt() -> None:
        """Send submitit's process the signal of SLURM before it takes the machine away."""
        for child in psutil.Process().children(recursive=True):
            if "submitit.core._submit" in child.cmdline():
                child.send_signal(signal.SIGUSR2)

    after_steps(home, plan, preempt)
    (outcome,) = scheduler.run(forecast(plan), Recorder(), WORKER)
    assert outcome.state == "done"
    attempts = journal(home, plan).attempts()
    assert [read_json(folder / "status.json")["state"] for folder in attempts] == ["interrupted", "done"]
    assert read_json(attempts[1] / "status.json")["start_step"] >= 2
    assert [row["step"] for row in journal(home, plan).steps()] == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
@pytest.mark.usefixtures("local")
def test_ctrl_c_reaches_the_job(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "0.4")
    plan = make("train.steps=40")
    after_steps(home, plan, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted):
        scheduler.run(forecast(plan), Recorder(), WORKER)
    monkeypatch.delenv("FAKE_SECONDS")
    (outcome,) = scheduler.run(forecast(plan), Recorder(), WORKER)
    assert outcome.state == "done"
    assert len(journal(home, plan).attempts()) == 2


def test_a_job_that_slurm_refuses(cluster: Path, home: Path) -> None:
    program(cluster, "sbatch", 'echo "sbatch: error: invalid partition specified: gpu" >&2; exit 1')
    with refused("run_failed", "0 of 1 runs are done", "invalid partition specified: gpu"):
        scheduler.run(forecast(make("seed=5")), Recorder(), WORKER)


def test_what_is_submitted(cluster: Path, home: Path) -> None:
    plan = make("seed=5", *SETTINGS)
    with refused("run_failed", "17", "NODE_FAIL"):
        scheduler.run(forecast(plan), Recorder(), WORKER)
    lines = (cluster / "calls.sbatch").read_text().splitlines()
    flags = {line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")}
    spec = plan.runs[0].spec
    folder = home / "runs" / spec.run_id
    assert {
        f"job-name={spec.run_id}",
        "partition=gpu",
        "account='a b'",
        "nodes=2",
        "ntasks-per-node=1",
        "gpus-per-node=4",
        f"cpus-per-task={spec.cluster.cpus}",
        "time=720",
        "requeue",
        "signal=USR2@900",
        "open-mode=append",
    } <= flags
    (command,) = [line for line in lines if line.startswith("srun")]
    assert f"{sys.executable} -u -m submitit.core._submit {folder / 'slurm'}" in command
    # On several nodes the worker joins the Ray cluster that its job starts; the run is the same.
    sent = from_dict(read_json(folder / "spec.json"))
    assert sent.cluster.ray_address == "auto"
    assert sent.run_id == spec.run_id


def test_a_later_scheduler_finds_the_job_again(cluster: Path, tmp_path: Path) -> None:
    program(cluster, "sacct", "printf 'JobID|State|NodeList\\n17|RUNNING|node1\\n'")
    (spec,) = load(list(JOBS))
    first = SlurmWorker("a-run", spec.cluster, SlurmTask(["true"], {}, tmp_path))
    (cluster / "calls.sbatch").unlink()
    second = SlurmWorker("a-run", spec.cluster, SlurmTask(["true"], {}, tmp_path))
    assert (first.job_id, second.job_id) == ("17", "17")
    assert not (cluster / "calls.sbatch").exists()
    assert second.poll() is None
    second.stop()
    assert (tmp_path / "slurm" / "stop").exists()
    assert not (cluster / "calls").exists()


def test_a_job_that_waits_is_taken_out_of_the_queue(cluster: Path, tmp_path: Path) -> None:
    program(cluster, "sacct", "printf 'JobID|State|NodeList\\n17|PENDING|\\n'")
    (spec,) = load(list(JOBS))
    SlurmWorker("a-run", spec.cluster, SlurmTask(["true"], {}, tmp_path)).stop()
    assert (cluster / "calls").read_text() == "scancel 17\n"


@pytest.mark.parametrize("rank", [0, 1])
def test_nodes_form_a_ray_cluster(rank: int, cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(
        cluster, "ray", 'echo "$*" $RAY_AUTH_MODE:$RAY_AUTH_TOKEN >> "$CALLS"; [[ $* == *--head* ]] && exec sleep 60'
    )
    monkeypatch.setattr(sys, "executable", str(cluster / "python"))
    for name, value in {
        "SUBMITIT_EXECUTOR": "slurm",
        "SLURM_JOB_ID": "17",
        "SLURM_NTASKS": "2",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_PROCID": str(rank),
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "slurm").mkdir()
    says = "echo $GREETING $RAY_AUTH_MODE:$RAY_AUTH_TOKEN"
    worker = ["bash", "-c", f"until [ -e {cluster}/calls ]; do sleep 0.05; done; {says}; exit 3"]
    task = SlurmTask(worker, {"GREETING": "hello"}, tmp_path)
    access = "token:" + task.environment["RAY_AUTH_TOKEN"]
    code, pid = task()
    calls = (cluster / "calls").read_text().splitlines()
    if rank == 0:
        assert calls == [f"start --head --port=6379 --include-dashboard=false --block {access}"]
        assert code == 3
        assert pid > 0
        assert (tmp_path / "worker.log").read_text() == f"hello {access}\n"
    else:
        assert calls == [f"start --address=node1:6379 --block {access}"]
        assert code == 0


def test_without_slurm_nothing_starts(here: InProcess) -> None:
    assert here.refused("bad_input", "train", *JOBS).endswith("fix: cluster.launcher=local")
    assert not (here.home / "runs").exists()
