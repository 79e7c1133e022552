"""Workers as SLURM jobs, through submitit (https://github.com/facebookincubator/submitit).

Run folders must be on a shared disk. A job that is preempted or out of time writes a checkpoint, is requeued and
resumes from it. Jobs outlive the scheduler; a later scheduler finds them again.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import submitit
from submitit.core.plugins import get_executors
from submitit.core.utils import FailedJobError, UncompletedJobError
from submitit.helpers import DelayedSubmission

from mcpo_cli.config.cluster import Cluster
from mcpo_cli.errors import ConfigError, RunFailed
from mcpo_cli.scheduling.process import begin

EXECUTOR = "slurm"
"""submitit's name for SLURM."""
WARNING_SECONDS = 900
"""SLURM sends its signal this long before the job's time is up."""
STOP_SECONDS = 780
"""Part of WARNING_SECONDS for finishing a global step, which can take minutes, and writing a checkpoint."""
MOST_REQUEUES = 100
"""Most requeues because the time was up; preempted jobs are always requeued."""
POLL_SECONDS = 0.5
RAY_PORT = 6379
Ending = tuple[int, int]
"""Exit code and process id of a worker."""


def check() -> None:
    """Raises ConfigError if SLURM is not installed."""
    for program in ("sbatch", "srun", "sacct"):
        if shutil.which(program) is None:
            wrong = f"cluster.launcher=slurm: there is no '{program}' here; is this a login node of the cluster?"
            raise ConfigError(wrong, fix="cluster.launcher=local")


class SlurmWorker:
    """See `Worker`. Submits a job, or finds the running one of an earlier scheduler.

    Raises:
        RunFailed: SLURM refuses the job.
    """

    pid = 0

    def __init__(self, name: str, cluster: Cluster, task: "SlurmTask") -> None:
        self._task = task
        self._folder = task.folder / "slurm"
        # Private: submitit stores the task here, with its Ray token.
        self._folder.mkdir(mode=0o700, exist_ok=True)
        note = self._folder / "job"
        if note.exists():
            kind = get_executors()[EXECUTOR].job_class
            job = kind(self._folder, note.read_text(encoding="utf-8"), range(cluster.nodes))
            if not job.done(force_check=True):
                self._job = job
                return
        executor = submitit.AutoExecutor(self._folder, cluster=EXECUTOR, slurm_max_num_timeout=MOST_REQUEUES)
        executor.update_parameters(name=name, **parameters(cluster))
        task.stop_file.unlink(missing_ok=True)
        try:
            self._job = executor.submit(task)
        except FailedJobError as error:
            raise RunFailed(
                f"SLURM refused the job: {_reason(error)}",
                fix="sinfo  (lists what this cluster has), then other settings cluster.*",
            ) from error
        note.write_text(self._job.job_id, encoding="utf-8")

    @property
    def job_id(self) -> str:
        """SLURM's id of the job."""
        return str(self._job.job_id)

    def poll(self) -> int | None:
        """See `Worker`. If SLURM ended the job, a line in the worker's log says so."""
        if not self._job.done():
            return None
        try:
            code, self.pid = self._job.results()[0]
        except (UncompletedJobError, FailedJobError) as error:
            with self._task.log.open("a", encoding="utf-8") as log:
                log.write(f"SLURM job {self.job_id} ended as {self._job.state}: {_reason(error)}\n")
            return 1
        return int(code)

    def stop(self) -> None:
        """See `Worker`. A job that is still queued is cancelled."""
        if self._job.get_info("force").get("State") == "PENDING":
            self.kill()
        else:
            self._task.stop_file.touch()

    def kill(self) -> None:
        """Cancel the job."""
        self._job.cancel(check=False)


class SlurmTask:
    """The job's content: the worker process and, on several nodes, a Ray cluster for it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self.command, self.folder = list(command), folder
        # Every node of the Ray cluster needs the same token.
        self.environment = {**environment, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """The file that receives the worker's output."""
        return self.folder / "worker.log"

    @property
    def stop_file(self) -> Path:
        """A file whose existence asks the worker to stop; a signal cannot reach another machine."""
        return self.folder / "slurm" / "stop"

    def __call__(self) -> Ending:
        """Run the worker to its end."""
        job = submitit.JobEnvironment()
        ray, environment = Path(sys.executable).with_name("ray"), {**os.environ, **self.environment}
        if job.global_rank > 0:
            # This node joins the first node's Ray cluster until that ends.
            address = f"--address={job.hostnames[0]}:{RAY_PORT}"
            subprocess.run([ray, "start", address, "--block"], env=environment, check=False)
            return 0, 0
        if job.num_nodes == 1:
            return self._work()
        command = [str(ray), "start", "--head", f"--port={RAY_PORT}", "--include-dashboard=false", "--block"]
        with subprocess.Popen(command, env=environment) as head:
            try:
                return self._work()
            finally:
                head.terminate()

    def _work(self) -> Ending:
        if self.stop_file.exists():
            return 128 + signal.SIGINT, 0
        self._process = begin(self.command, self.environment, self.log)
        asked = False
        while (code := self._process.poll()) is None:
            if not asked and self.stop_file.exists():
                self._process.send_signal(signal.SIGINT)
                asked = True
            time.sleep(POLL_SECONDS)
        return code, self._process.pid

    def checkpoint(self) -> DelayedSubmission:
        """Have the worker write a checkpoint and exit; submitit calls this before it requeues the job."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
        return DelayedSubmission(SlurmTask(self.command, self.environment, self.folder))


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


def parameters(cluster: Cluster) -> dict[str, object]:
    """The resources of a job, by submitit's names."""
    options = {"slurm_partition": cluster.partition, "slurm_account": cluster.account}
    return {
        "nodes": cluster.nodes,
        "tasks_per_node": 1,
        "gpus_per_node": cluster.gpus,
        "cpus_per_task": cluster.cpus,
        "timeout_min": 60 * cluster.hours,
        "slurm_signal_delay_s": WARNING_SECONDS,
        # Requeue also if a machine fails.
        "slurm_additional_parameters": {"requeue": True},
        **{name: value for name, value in options.items() if value},
    }
