"""Runs a plan: one worker process per run, a few at a time. All checks come before the first start."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from mcpo_cli import backends, extras
from mcpo_cli.backends import feasible
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import Interrupted, RunFailed
from mcpo_cli.home import home, writing
from mcpo_cli.records import State
from mcpo_cli.runs import attempts, sanity
from mcpo_cli.runs.journal import Journal, read_json, write_json
from mcpo_cli.scheduling.estimate import Estimator, slots, until_the_end
from mcpo_cli.scheduling.process import ForkServer, LocalWorker, Watch, Worker, check_limits
from mcpo_cli.scheduling.progress import Progress, RunView, Tracker, View, final_metrics
from mcpo_cli.scheduling.worker import BUSY
from mcpo_cli.trackers.follower import following_plan

WORKER = (sys.executable, "-P", "-m", "mcpo_cli.scheduling.worker")
"""A worker of a backend that preloads nothing. -P keeps files in the user's folder from shadowing modules."""
TICK_SECONDS = 0.25
ESTIMATE_SECONDS = 10.0
"""Time between two corrections of the estimates by the steps that running runs have done."""
LITTLE_BYTES = 1 << 20
"""A disk with less free space is reported as full."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads of a worker sleep until all have done their part; they do not spin.

With other programs on the same cores, a step with two threads then takes a seventh of the time.
"""


class Display(Protocol):
    """Shows a plan while it runs."""

    def update(self, view: View) -> None:
        """Show the plan's current state; called several times a second."""

    def note(self, text: str) -> None:
        """Print a message once."""


@dataclass(frozen=True)
class Outcome:
    """The result of one cell."""

    cell: PlannedRun
    state: State
    metrics: dict[str, float]
    """See `final_metrics`; empty unless the run is done."""
    error: str | None

    def to_json(self) -> dict[str, Any]:
        """The object that `mcpo train --json` prints."""
        spec = self.cell.spec
        return {
            "run_id": spec.run_id,
            "arm": self.cell.arm,
            **spec.about,
            "state": self.state,
            "metrics": self.metrics,
            **({"error": self.error} if self.error else {}),
        }


@dataclass
class _Job:
    """One cell while the scheduler runs."""

    cell: PlannedRun
    folder: Path
    state: State
    tracker: Tracker
    process: Worker | None = None
    watch: Watch | None = None
    broke: str | None = None
    """The limit that its worker was killed for."""
    tried: bool = False
    """True if this scheduler started a worker for it."""
    stops_sent: int = 0
    """Number of stop requests passed on to the worker."""
    error: str | None = None
    progress: Progress = field(default_factory=Progress)

    @property
    def waits(self) -> bool:
        return not self.tried and self.state != "done"


def run(plan: Plan, display: Display, worker: Sequence[str] = ()) -> list[Outcome]:
    """Run every cell of `plan` that is not done.

    worker: a command that takes a run's id and is started in place of mcpo's own worker.

    Raises:
        ConfigError: a requirement is missing or unreachable; nothing was started.
        RunFailed: some cells did not finish; the others did.
        Interrupted: a signal asked to stop; every active run has written a checkpoint.
    """
    folder = home()
    scheduler = _Scheduler(plan, folder, display, worker)
    # Completed runs are not checked, so that tables of a cluster's runs can be built on any machine.
    unfinished = [job.cell.spec for job in scheduler.jobs if job.waits]
    feasible.check(unfinished)
    for spec in unfinished:
        backends.get(spec.backend).check(spec)
        check_limits(spec)
        for tracker in spec.cluster.loggers:
            extras.require(tracker, f"cluster.loggers=[{tracker}]")
    # The models that these checks fetched show whether prompts fit.
    feasible.check(unfinished)
    if any(spec.cluster.launcher == "slurm" for spec in unfinished):
        extras.require("submitit", "cluster.launcher=slurm")
        from mcpo_cli.scheduling import slurm

        slurm.check()
    following = following_plan(plan, display.note, lambda: scheduler.stops > 0)
    with following, _signals(scheduler.stop), closing(scheduler):
        scheduler.loop()
    outcomes = [_outcome(job) for job in scheduler.jobs]
    _raise_unfinished(plan, folder, outcomes, stopped=scheduler.stops > 0)
    return outcomes


def document(plan: Plan, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The outcomes of `plan` as plain data."""
    return {"suite": plan.suite, "home": str(home()), "runs": [outcome.to_json() for outcome in outcomes]}


class _Scheduler:
    """The scheduling loop and its state."""

    def __init__(self, plan: Plan, folder: Path, display: Display, worker: Sequence[str]) -> None:
        self.plan = plan
        self.display = display
        self.worker = worker
        self.home = folder
        self.stops = 0
        self.slots = slots(plan)
        self.servers: dict[tuple[str, ...], ForkServer] = {}
        self.began = time.monotonic()
        jobs = {cell.spec.run_id: self._job(cell) for cell in plan.cells}
        self.jobs = [*jobs.values()]
        # All arms of one seed come before the next seed, so that a plan that is cut off has whole comparisons.
        self.queue = [jobs[cell.spec.run_id] for group in plan.groups for cell in group]
        self.estimator = Estimator(folder)
        self._estimate()

    def stop(self) -> None:
        """Ask the running workers to exit; the second call kills them. Takes effect at the next tick."""
        self.stops += 1

    def loop(self) -> None:
        """Start workers and follow them until no work is left."""
        while True:
            for job in self.jobs:
                self._follow(job)
            while not self.stops and (job_to_start := self._next()):
                self._start(job_to_start)
            if time.monotonic() - self.estimated >= ESTIMATE_SECONDS:
                self._estimate()
            self.display.update(self._view())
            if not any(job.process for job in self.jobs) and (self.stops or not any(job.waits for job in self.jobs)):
                return
            self._pass_on_stops()
            time.sleep(TICK_SECONDS)

    def close(self) -> None:
        """End the fork servers."""
        for server in self.servers.values():
            server.close()

    def _pass_on_stops(self) -> None:
        going = [job for job in self.jobs if job.process and job.stops_sent < min(self.stops, 2)]
        for job in going:
            assert job.process is not None
            if self.stops == 1:
                job.process.stop()
            else:
                job.process.kill()
            job.stops_sent = min(self.stops, 2)
        if going and self.stops == 1:
            self.display.note("stopping: runs write a checkpoint if it takes seconds (Ctrl-C again to kill them)")

    def _job(self, cell: PlannedRun) -> _Job:
        folder = self.home / "runs" / cell.spec.run_id
        return _Job(cell, folder, attempts.state(folder, cell.spec), Tracker(folder, cell.spec))

    def _next(self) -> _Job | None:
        """The next waiting cell, if a slot is free; cells whose base policy is not being trained come first."""
        busy = [job for job in self.jobs if job.process]
        if len(busy) >= self.slots:
            return None
        waiting = [job for job in self.queue if job.waits and job.state != "running"]
        bases_in_work = {job.cell.spec.base_id for job in busy if job.progress.step == 0}
        ready = [job for job in waiting if job.cell.spec.base_id not in bases_in_work]
        return next(iter(ready or waiting), None)

    def _start(self, job: _Job) -> None:
        # Another scheduler may have started or finished it meanwhile.
        job.state = attempts.state(job.folder, job.cell.spec)
        if job.state in ("running", "done"):
            return
        spec = _placed(job.cell.spec)
        job.tried = True
        try:
            # Otherwise the settings of another run, in a linked folder, would be overwritten.
            attempts.check_own(job.folder, spec)
            write_json(job.folder / "spec.json", spec.to_dict())
            if not (job.folder / "origin.json").exists():
                origin = {"suite": self.plan.suite, "arm": job.cell.arm, "command": self.plan.command}
                write_json(job.folder / "origin.json", origin)
            with writing(job.folder / "worker.log"):
                job.process = self._worker(job)
        except RunFailed as error:
            job.state, job.error = "failed", _line(str(error))
            return
        job.watch = Watch(spec.compute, job.process)
        job.state = "running"

    def _worker(self, job: _Job) -> Worker:
        """A local process or a SLURM job."""
        spec = job.cell.spec
        threads = {name: str(spec.compute.threads) for name in THREAD_VARIABLES} | WAITING
        command = [*(self.worker or WORKER), spec.run_id]
        environment, log = {**threads, "MCPO_HOME": str(self.home)}, job.folder / "worker.log"
        if spec.cluster.launcher == "local":
            if (module := backends.get(spec.backend).preloads) and not self.worker:
                # Libraries read the environment as they are loaded.
                key = (module, *environment.values())
                if key not in self.servers:
                    self.servers[key] = ForkServer(module, environment)
                return self.servers[key].start(spec.run_id, log)
            return LocalWorker(command, environment, log)
        from mcpo_cli.scheduling.slurm import SlurmWorker, Task

        worker = SlurmWorker(spec.run_id, spec.cluster, Task(command, environment, job.folder))
        self.display.note(f"{spec.run_id}: SLURM job {worker.job_id}")
        return worker

    def _follow(self, job: _Job) -> None:
        if job.process:
            job.progress = job.tracker.read()
            if (code := job.process.poll()) is not None:
                self._end(job, job.process.pid, code)
            elif job.watch and not job.broke and (broke := job.watch.exceeded(job.progress)):
                job.broke = broke
                job.process.kill()
            self._warn(job)
        elif job.state == "running":
            # Another process trains it; once that exits, the cell is done or this scheduler continues it.
            job.progress = job.tracker.read()
            self._warn(job)
            if not attempts.is_owned(job.folder):
                job.state = attempts.state(job.folder, job.cell.spec)

    def _end(self, job: _Job, pid: int, code: int) -> None:
        """Record that the worker, process `pid`, exited with `code`."""
        job.process = None
        state = attempts.state(job.folder, job.cell.spec)
        if code == BUSY or (code == 0 and state == "running"):
            # Another scheduler's worker holds the run, which this one may have just finished: wait for it.
            job.tried, job.state = False, "running"
        elif code < 0 and job.broke:
            attempts.mark_failed(job.folder, pid, job.broke)
            job.state, job.error = "failed", _line(job.broke)
        else:
            job.state, job.error = _ending(job, pid, code, state)
        self.estimator.learn(job.folder, job.cell.spec)
        self._estimate()

    def _warn(self, job: _Job) -> None:
        for warned in job.tracker.warnings():
            self.display.note(f"{job.cell.spec.run_id}: warning: {sanity.line(warned)}")
        for note in job.tracker.notes():
            self.display.note(f"{job.cell.spec.run_id}: {note}")

    def _estimate(self) -> None:
        """Estimate the time of the remaining work, from all steps done here so far."""
        self.estimated = time.monotonic()
        for job in self.jobs:
            if job.process or job.state == "running":
                self.estimator.learn(job.folder, job.cell.spec)
        bases = set[str]()
        self.estimates = {
            job.cell.spec.run_id: self.estimator.seconds(
                job.cell.spec, job.progress.step or job.tracker.read().step, bases
            )
            for job in self.jobs
            if job.waits or job.process
        }

    def _view(self) -> View:
        going = [*(job for job in self.jobs if job.process), *(job for job in self.queue if job.waits)]
        left = {job.cell.spec.run_id: self._seconds_left(job) for job in going}
        cells = [
            RunView(
                job.cell,
                job.state,
                replace(job.progress, seconds_left=left.get(job.cell.spec.run_id, job.progress.seconds_left)),
                job.error,
            )
            for job in self.jobs
        ]
        elapsed = time.monotonic() - self.began
        seconds = until_the_end([*left.values()], self.slots, elapsed)
        return View(self.plan.suite, cells, elapsed, seconds, stopping=self.stops > 0)

    def _seconds_left(self, job: _Job) -> float:
        """Seconds left by the run's own speed, or by the estimate while that is unknown."""
        own = job.progress.seconds_left
        return self.estimates[job.cell.spec.run_id] if own is None else own


def _placed(spec: RunSpec) -> RunSpec:
    """The `spec` that the worker reads: on several SLURM nodes it joins the Ray cluster that its job starts."""
    cluster = spec.cluster
    if cluster.launcher == "local" or cluster.nodes == 1:
        return spec
    return replace(spec, cluster=replace(cluster, ray_address="auto"))


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` for every SIGINT and SIGTERM."""
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ending(job: _Job, pid: int, code: int, state: State) -> tuple[State, str | None]:
    """State and error line of a job whose worker, process `pid`, exited with `code` and left the run in `state`."""
    if code == 0 and state == "done":
        return "done", None
    if code == 0:
        return "failed", f"the worker ended without finishing: {'; '.join(attempts.missing(job.folder, job.cell.spec))}"
    if code == 130:
        return "interrupted", None
    if code < 0:
        return "interrupted", f"killed by {signal.Signals(-code).name}"
    return "failed", _error_line(job.folder, pid) or f"the worker exited with code {code}{_disk(job.folder)}"


def _error_line(folder: Path, pid: int) -> str | None:
    """The worker's last message: from the status of its attempt, or from its log if it opened none."""
    for attempt in Journal(folder).attempts()[-1:]:
        status = read_json(attempt / "status.json")
        if status["pid"] == pid and "error" in status:
            return _line(str(status["error"]))
    log = folder / "worker.log"
    if not log.exists():
        return f"{folder} was removed while the run was writing to it; the same command begins it again"
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), None)


def _line(text: str) -> str:
    """Several lines of text as one."""
    return "; ".join(line.strip() for line in text.splitlines())


def _disk(folder: Path) -> str:
    """The reason why a worker may have left no message: a full or read-only disk."""
    free = shutil.disk_usage(folder).free
    if free < LITTLE_BYTES:
        return f"; {free // 1024} KiB are free on the disk of {folder}"
    return "" if os.access(folder, os.W_OK) else f"; {folder} cannot be written"


def _outcome(job: _Job) -> Outcome:
    metrics = final_metrics(job.folder) if job.state == "done" else {}
    return Outcome(job.cell, job.state, metrics, job.error)


def _raise_unfinished(plan: Plan, folder: Path, outcomes: Sequence[Outcome], *, stopped: bool) -> None:
    unfinished = [outcome for outcome in outcomes if outcome.state != "done"]
    if not unfinished:
        return
    data = document(plan, outcomes)
    counts = f"{len(outcomes) - len(unfinished)} of {len(outcomes)} runs are done"
    if stopped:
        raise Interrupted(f"stopped: {counts}; the same command continues the others", fix=plan.command, data=data)
    lines = [
        f"  {outcome.cell.spec.run_id}: {outcome.error or outcome.state}\n"
        f"    log: {folder / 'runs' / outcome.cell.spec.run_id / 'worker.log'}"
        for outcome in unfinished
    ]
    raise RunFailed("\n".join([f"{counts}; these failed:", *lines]), fix=f"{plan.command}  (continues them)", data=data)
